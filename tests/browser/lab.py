"""A JupyterLab of one's own and a browser page on it, for tests and screenshots."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Playwright

# The first that exists is used; CHROMIUM names another one.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER_FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
)
# The accessibility checker, from npm; `make browser` fetches it.
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
WIDGET = "application/vnd.jupyter.widget-view+json"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
STARTUP_SECONDS = 120
# JupyterLab's defaults for the course, as `make install` puts them in place.
SETTINGS = Path(__file__).parents[2] / "course" / "jupyterlab.json"
# Folders of another Jupyter would come first, with their kernels.
FOREIGN = ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH")


class NoBrowser(RuntimeError):
    """No Chromium on this machine."""


def find_browser() -> str:
    """Return the path of a Chromium or Chrome.

    Raises
    ------
    NoBrowser
        If there is none, or the one that ``CHROMIUM`` names is missing.
    """
    named = os.environ.get("CHROMIUM")
    found = filter(None, map(shutil.which, [named] if named else BROWSERS))
    path = next(found, None)
    if path is None:
        raise NoBrowser(
            f"CHROMIUM={named!r} is not a program"
            if named
            else f"the browser tests need one of {', '.join(BROWSERS)}: install "
            "Chromium (Debian, Ubuntu: apt-get install chromium) or Chrome, or set "
            "CHROMIUM to its path"
        )
    return path


def launch_browser(playwright: Playwright) -> Browser:
    """Start a headless Chromium with a fresh profile and no network chatter."""
    return playwright.chromium.launch(
        executable_path=find_browser(), args=list(BROWSER_FLAGS)
    )


class LabServer:
    """A running JupyterLab on ``root``; ``url`` and ``token`` open it."""

    def __init__(self, root: Path, home: Path) -> None:
        """Start the server and wait until it answers.

        Parameters
        ----------
        root
            The folder that JupyterLab shows.
        home
            An empty folder for its settings, so that this user's are left alone.
        """
        config = home / "config" / "labconfig"
        config.mkdir(parents=True)
        shutil.copy(SETTINGS, config / "default_setting_overrides.json")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.token = secrets.token_hex(16)
        self._log: list[str] = []
        self._answers = threading.Event()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
                "--ServerApp.ip=127.0.0.1",
                f"--ServerApp.port={port}",
                "--ServerApp.port_retries=0",
                f"--ServerApp.root_dir={root}",
                f"--IdentityProvider.token={self.token}",
                "--LabApp.expose_app_in_browser=True",
                "--LabApp.extension_manager=readonly",
                "--LabApp.news_url=None",
            ],
            env=private_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read_log, args=[f"{self.url}/lab"])
        self._reader.start()
        if not self._answers.wait(STARTUP_SECONDS) or self._process.poll() is not None:
            self.stop()
            raise RuntimeError(f"JupyterLab did not start:\n{self.log}")

    def _read_log(self, announced: str) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.append(line)
            if announced in line:
                self._answers.set()
        self._answers.set()  # the process has ended: nothing more to wait for

    @property
    def log(self) -> str:
        """All that the server has logged."""
        return "".join(self._log)

    def stop(self) -> None:
        """Stop the server and its kernels."""
        self._process.terminate()
        self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()


def private_environment(home: Path) -> dict[str, str]:
    """Return this environment with Jupyter's and IPython's folders inside ``home``."""
    ours = {
        "IPYTHONDIR": home / "ipython",
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
    }
    theirs = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return theirs | {name: str(path) for name, path in ours.items()}


class Notebook:
    """A notebook open in JupyterLab; cells are named by their ids.

    ``errors`` collects what the page wrote to the console as an error.
    """

    def __init__(self, page: Page, server: LabServer, path: str) -> None:
        """Open ``path`` (below the server's root) and wait for its kernel."""
        self.page = page
        self.server = server
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note_console)
        page.goto(f"{server.url}/lab/tree/{quote(path)}?reset&token={server.token}")
        self.wait_for(path)

    def wait_for(self, path: str) -> None:
        """Wait until the notebook ``path`` is in front and its kernel answers."""
        self.page.wait_for_function(
            "path => window.jupyterapp?.shell.currentWidget?.context?.path === path",
            arg=path,
        )
        self._js(
            """await panel.context.ready;
            await panel.context.sessionContext.ready;
            await panel.context.sessionContext.session.kernel.info;
            for (const cell of notebook.widgets)
              cell.node.dataset.cellId = cell.model.id;"""
        )

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location.get('url')})")

    def cell(self, cell_id: str) -> Locator:
        """Return the cell's place on the page."""
        return self.page.locator(f'[data-cell-id="{cell_id}"]')

    def output(self, cell_id: str) -> Locator:
        """Return the place of all that the cell has put out."""
        return self.cell(cell_id).locator(".jp-OutputArea-output")

    def text(self, cell_id: str) -> str:
        """Return the cell's outputs as a reader sees them."""
        return "\n".join(self.output(cell_id).all_inner_texts())

    def troubles(self) -> list[str]:
        """Return every exception and every line on stderr that a cell has put out."""
        return self._js(
            """return notebook.widgets
              .filter(cell => cell.model.type === "code")
              .flatMap(cell => cell.model.outputs.toJSON().map(out => [cell, out]))
              .filter(([, out]) => "evalue" in out || out.name === "stderr")
              .map(([cell, out]) => `${cell.model.id}: ${out.evalue ?? out.text}`);"""
        )

    def activate(self, cell_id: str) -> None:
        """Select the cell, as a click on it does."""
        self._js(
            """const index = notebook.widgets.findIndex(cell => cell.model.id === arg);
            if (index < 0) throw new Error(`no cell has the id ${arg}`);
            notebook.deselectAll();
            notebook.activeCellIndex = index;
            await notebook.scrollToItem(index);""",
            cell_id,
        )

    def source(self, cell_id: str) -> str:
        """Return the text of the cell."""
        self.activate(cell_id)
        return self._js("return notebook.activeCell.model.sharedModel.source;")

    def replace(self, cell_id: str, source: str) -> None:
        """Select all that stands in the cell and paste ``source`` over it."""
        self.activate(cell_id)
        self.cell(cell_id).locator(".cm-content").click()
        self.page.keyboard.press("ControlOrMeta+A")
        self.page.keyboard.insert_text(source)
        assert self.source(cell_id) == source

    def run(self, cell_id: str) -> None:
        """Run the cell as Shift-Enter does, and wait until it is done."""
        self.activate(cell_id)
        self._command("notebook:run-cell-and-select-next")

    def run_all(self) -> None:
        """Run all cells and wait until they are done."""
        self._command("notebook:run-all-cells")

    def trust(self) -> None:
        """Show stored outputs in full, as a notebook that this user has run."""
        self._js("for (const cell of notebook.widgets) cell.model.trusted = true;")

    def save(self) -> None:
        """Save the notebook, as Ctrl-S does, and wait until it is written."""
        self._js("await panel.context.save();")

    def set_theme(self, theme: Literal["light", "dark"]) -> None:
        """Switch JupyterLab to its light or dark theme."""
        self._command("apputils:change-theme", {"theme": THEMES[theme]})
        self.page.wait_for_function(
            "light => document.body.dataset.jpThemeLight === light",
            arg=str(theme == "light").lower(),
        )
        # A second change while JupyterLab's splash fades makes it stumble over itself.
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")

    def serious_barriers(self, cell_id: str) -> list[Any]:
        """Return what axe finds serious or critical in the cell's widget.

        Raises
        ------
        FileNotFoundError
            If the checker was not installed.
        """
        if not AXE.exists():
            raise FileNotFoundError(
                "axe-core is missing: npm ci --prefix tests/browser"
            )
        if not self.page.evaluate("'axe' in window"):
            self.page.add_script_tag(path=AXE)
        return self.page.evaluate(
            """async (cell) => {
              const root = document.querySelector(`[data-cell-id="${cell}"] .pkv`);
              const { violations } = await axe.run(root);
              return violations
                .filter((v) => ["serious", "critical"].includes(v.impact))
                .map((v) => [v.id, v.nodes.map((node) => node.html)]);
            }""",
            cell_id,
        )

    def cut_off(self, cell_id: str) -> list[str]:
        """Return the parts of the cell's widgets whose content is wider than they."""
        return self.cell(cell_id).evaluate(
            """cell => [...cell.querySelectorAll(".pkv, .pkv :is(.wide, .met, .facts)")]
              .filter((e) => e.scrollWidth > e.clientWidth)
              .map((e) => `.${e.className} ${e.scrollWidth} > ${e.clientWidth}`)"""
        )

    def close(self) -> None:
        """Close the page, then end the kernels: whoever opens it next begins anew."""
        self.page.close()
        request = self.page.context.request
        sessions = f"{self.server.url}/api/sessions"
        headers = {"Authorization": f"token {self.server.token}"}
        for session in request.get(sessions, headers=headers).json():
            answer = request.delete(f"{sessions}/{session['id']}", headers=headers)
            assert answer.ok, answer.status_text

    def _command(self, name: str, arguments: dict[str, str] | None = None) -> None:
        self._js("await app.commands.execute(...arg);", [name, arguments or {}])

    def _js(self, body: str, arg: Any = None) -> Any:
        """Run ``body`` in the page, with ``arg``, the app, its panel and notebook."""
        return self.page.evaluate(
            f"""async arg => {{
              const app = window.jupyterapp;
              const panel = app.shell.currentWidget;
              const notebook = panel.content;
              {body}
            }}""",
            arg,
        )


@contextmanager
def open_notebook(
    browser: Browser, server: LabServer, path: str, width: int = 1280, height: int = 900
) -> Iterator[Notebook]:
    """Open ``path`` in a page of its own, sized in CSS pixels; close it in the end."""
    context = browser.new_context(viewport={"width": width, "height": height})
    context.set_default_timeout(60_000)
    try:
        notebook = Notebook(context.new_page(), server, path)
        yield notebook
        notebook.close()
    finally:
        context.close()
