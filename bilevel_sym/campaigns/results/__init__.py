"""What a campaign leaves behind: a folder of parts, and tables, filters and brackets made of them."""
