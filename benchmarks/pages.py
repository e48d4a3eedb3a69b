"""Put a table that a benchmark has measured into a page, between its markers."""


def put(page, begin, end, text):
    """Replace what the page, a Path, has between two comments that occur once in it."""
    before, rest = page.read_text("utf-8").split(begin)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}", "utf-8")
