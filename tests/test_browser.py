"""The site in headless Chromium: nothing to stumble over at any width, in light and dark."""

import runpy
import subprocess
import sys

import pytest
from commands import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.needs("playwright", "zensical", "mkdocstrings")]

PLANTED = """<article>
<p>{names}</p>
<pre style="width: 99px"><code style="display: block; overflow: auto">{code}</code></pre>
<img src="nothing.png"><script>console.error("planted")</script>
<div style="width: 1100px">wide</div>
</article>"""


@pytest.fixture(scope="module")
def look():
    script = runpy.run_path(str(ROOT / "docs" / "look.py"))
    if script["chromium"]() is None:
        pytest.skip("no Chromium on the path")
    return script["look"]


def test_a_visitor_stumbles_over_nothing(look):
    build = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    subprocess.run([*build, "-f", "docs/mkdocs.yml"], cwd=ROOT, check=True)
    assert look(ROOT / "docs" / "build") == []


def test_what_is_planted_is_found(look, tmp_path):
    names = "word <code>a_name_of_24_characters_</code> " * 40
    style = "<style>code { word-break: break-all }</style>"
    page = style + PLANTED.format(names=names, code="x" * 100)
    (tmp_path / "index.html").write_text(page)
    complaints = "\n".join(look(tmp_path))
    for what in (
        "index.html, 390 px, light: scrolls sideways by 718 px",  # 1100 and a margin of 8
        "index.html, 1024 px, dark: scrolls sideways by 84 px",
        "breaks the name 'a_name_of_24_characters_'",
        "index.html, 1400 px, light: clips the code 'xxx",
        "404 http",
        "planted",
        "the search does not find rkmk4",
        "no button turns the dark colours",
    ):
        assert what in complaints, what
    assert "1400 px, light: scrolls" not in complaints
