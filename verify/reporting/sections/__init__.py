"""The sections of a page, a module each; what a problem does not have is one sentence that says why."""
