"""Papers: what is to be judged, one folder each, with an object ``THEORY`` in its module ``theory``."""
