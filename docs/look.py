"""Open every page of the site in headless Chromium and say what a visitor would stumble over.

    zensical build --clean --strict -f docs/mkdocs.yml && python docs/look.py [--shots FOLDER]

Each page is opened in light and dark colours and shown 390, 1024 and 1400 px wide. A complaint is
an error of the console, a request that fails, a page that scrolls sideways, a name that breaks
within itself, or code of at most 100 columns that does not fit at 1400 px. The search must find
rkmk4, and a button must turn dark colours into light ones. ``--shots`` keeps pictures of three
pages. It needs the package playwright, and a Chromium on the path.
"""

import argparse
import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Error, Page, sync_playwright

SITE = Path(__file__).resolve().parent / "build"
WIDTHS = (390, 1024, 1400)
SHOTS = ("index", "schemes", "api/trajectories")

# What a page of some width shows; lists are empty where all is well.
MEASURE = """() => {
  const brief = (node) => node.textContent.trim().slice(0, 40);
  const inline = [...document.querySelectorAll("article code")].filter(
    (node) => !node.closest("pre") && node.getClientRects().length);
  const whole = (node) => /^[\\w.]{1,24}$/.test(node.textContent);
  const blocks = [...document.querySelectorAll("article pre > code")];
  const columns = (node) => Math.max(...node.innerText.split("\\n").map((line) => line.length));
  return {
    sideways: document.scrollingElement.scrollWidth - window.innerWidth,
    broken: inline.filter((node) => whole(node) && node.getClientRects().length > 1).map(brief),
    clipped: blocks.filter(
      (node) => columns(node) <= 100 && node.scrollWidth > node.clientWidth + 1).map(brief),
  };
}"""


def chromium() -> str | None:
    """The path of a Chromium, or None where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that prints nothing."""

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of the site, served from a thread."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as play:
        chrome = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield chrome
        chrome.close()


def watched(chrome: Browser, scheme: str) -> tuple[Page, list[str]]:
    """A page, and the list into which its errors will go."""
    page, errors = chrome.new_page(color_scheme=scheme), []
    page.on("console", lambda said: said.type == "error" and errors.append(said.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "requestfailed",
        lambda request: (
            request.failure == "net::ERR_ABORTED"  # by going on to the next page
            or errors.append(f"{request.failure} {request.url}")
        ),
    )
    page.on("response", lambda got: got.status >= 400 and errors.append(f"{got.status} {got.url}"))
    return page, errors


def complaints_of(page: Page, width: int) -> Iterator[str]:
    """What is wrong with the page that is open, at this width."""
    page.set_viewport_size({"width": width, "height": 900})
    measured = page.evaluate(MEASURE)
    if measured["sideways"] > 0:
        yield f"scrolls sideways by {measured['sideways']} px"
    for name in measured["broken"]:
        yield f"breaks the name {name!r}"
    for code in measured["clipped"] if width == 1400 else ():
        yield f"clips the code {code!r}"


def look(site: Path = SITE, shots: Path | None = None) -> list[str]:
    """Return all complaints about the site, a line each."""
    complaints = []
    names = sorted(str(file.relative_to(site)) for file in site.rglob("*.html"))
    with served(site) as address, browser() as chrome:
        for scheme in ("light", "dark"):
            page, errors = watched(chrome, scheme)
            for name in names:
                page.goto(f"{address}/{name}")
                for width in WIDTHS:
                    found = [*complaints_of(page, width), *errors]
                    complaints += [f"{name}, {width} px, {scheme}: {what}" for what in found]
                    errors.clear()
                    if shots and name.removesuffix(".html") in SHOTS:
                        stem = name.removesuffix(".html").replace("/", "-")
                        page.wait_for_timeout(500)  # colours fade in
                        page.screenshot(path=shots / f"{stem}-{width}-{scheme}.png")
        complaints += [*unsearchable(chrome, address), *stuck(chrome, address)]
    return complaints


def unsearchable(chrome: Browser, address: str) -> Iterator[str]:
    """Yield a complaint if the search does not find a scheme."""
    page, errors = watched(chrome, "light")
    page.goto(f"{address}/index.html")
    page.keyboard.press("/")
    page.keyboard.type("rkmk4", delay=30)
    try:
        page.wait_for_selector("a[href*='schemes.html']:has(mark)", timeout=10_000)
    except Error as error:
        yield f"the search does not find rkmk4: {error}"
    yield from errors


def stuck(chrome: Browser, address: str) -> Iterator[str]:
    """Yield a complaint unless the button turns dark colours into light ones."""
    page, errors = watched(chrome, "dark")
    page.goto(f"{address}/index.html")
    colours = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    dark, button = colours(), page.query_selector("label[for^=__palette]:not([hidden])")
    if button is not None:
        button.click()
    if button is None or colours() == dark:
        yield f"no button turns the dark colours {dark} into light ones"
    yield from errors


def main() -> None:
    """Print the complaints; the exit status is 1 if there are any."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--site", type=Path, default=SITE)
    parser.add_argument("--shots", type=Path, help="a folder for pictures")
    options = parser.parse_args()
    if options.shots:
        options.shots.mkdir(parents=True, exist_ok=True)
    complaints = look(options.site, options.shots)
    print("\n".join(complaints) or "nothing to complain of")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
