"""The doctor sees what is missing, and names a remedy for it."""

import importlib.metadata
import sys

import pytest

from paged_kv.commands import doctor
from paged_kv.commands.doctor import examine_installation, requirements

LOOKED_AT = {
    *("Python", "paged-kv", "numpy", "jupyterlab", "ipywidgets", "torch", "matplotlib"),
    *("widgets in JupyterLab", "kernel python3", "font with Cyrillic letters"),
    "weights of the small model",
}


def failures():
    """Return what the doctor finds wrong, by name."""
    return {f.name: f for f in examine_installation() if f.remedy}


def test_all_is_well_where_the_tests_run():
    findings = list(examine_installation())
    assert {finding.name for finding in findings} >= LOOKED_AT
    assert [str(finding) for finding in findings if finding.remedy] == []
    assert all(str(finding).startswith("OK   ") for finding in findings)


def test_what_students_need_is_looked_at_and_nothing_else(monkeypatch):
    monkeypatch.setattr(doctor.platform, "system", lambda: "Linux")
    names = [name for name, _ in requirements()]
    assert {"numpy", "jupyterlab", "torch", "triton"} <= set(names)
    assert {"pytest", "nbgrader"}.isdisjoint(names)
    monkeypatch.setattr(doctor.platform, "system", lambda: "Windows")
    assert "triton" not in [name for name, _ in requirements()]


@pytest.fixture
def without_imports(monkeypatch):
    """Look at versions only: torch alone takes seconds."""
    monkeypatch.setattr(doctor, "import_module", lambda name: None)


class TestFaults:
    @pytest.fixture(autouse=True)
    def quick(self, without_imports):
        pass

    def test_a_package_is_missing(self, monkeypatch):
        version = importlib.metadata.version

        def lookup(name):
            if name == "ipywidgets":
                raise importlib.metadata.PackageNotFoundError(name)
            return version(name)

        monkeypatch.setattr(importlib.metadata, "version", lookup)
        assert failures().keys() == {"ipywidgets"}
        assert "pip install" in failures()["ipywidgets"].remedy

    @pytest.mark.parametrize("version", ["0.9", "8.0.99", ""])
    def test_a_package_is_too_old(self, monkeypatch, version):
        real = importlib.metadata.version
        monkeypatch.setattr(
            importlib.metadata,
            "version",
            lambda name: version if name == "ipywidgets" else real(name),
        )
        assert failures().keys() == {"ipywidgets"}

    def test_a_package_cannot_be_imported(self, monkeypatch):
        def fail(name):
            if name == "torch":
                raise OSError("libsomething.so: cannot open")

        monkeypatch.setattr(doctor, "import_module", fail)
        assert failures().keys() == {"torch"}
        assert "libsomething" in failures()["torch"].found

    def test_no_labextension(self, monkeypatch):
        monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda *_: [])
        assert failures().keys() == {"widgets in JupyterLab"}

    @pytest.mark.parametrize(
        "python", ["python-of-nowhere", sys.executable], ids=["missing", "wrong"]
    )
    def test_a_kernel_that_does_not_know_the_course(self, monkeypatch, python):
        monkeypatch.setattr(
            "jupyter_client.manager.KernelManager.format_kernel_cmd",
            lambda self: [python, "-m", "ipykernel"],
        )
        monkeypatch.setenv("PYTHONHOME", "nowhere")  # breaks a Python that is there
        assert failures().keys() == {"kernel python3"}

    def test_no_kernel(self, monkeypatch):
        def missing(self):
            from jupyter_client.kernelspec import NoSuchKernel

            raise NoSuchKernel("python3")

        monkeypatch.setattr(
            "jupyter_client.manager.KernelManager.format_kernel_cmd", missing
        )
        assert "ipykernel install" in failures()["kernel python3"].remedy

    def test_a_font_without_cyrillic(self, monkeypatch):
        from matplotlib import font_manager

        latin = font_manager.findfont("cmr10")  # comes with matplotlib
        monkeypatch.setattr(font_manager, "findfont", lambda *_: latin)
        assert failures().keys() == {"font with Cyrillic letters"}

    def test_no_weights(self, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        assert failures().keys() == {"weights of the small model"}

    def test_no_package(self, monkeypatch):
        def missing(name):
            raise importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(importlib.metadata, "version", missing)
        monkeypatch.setattr(importlib.metadata, "requires", missing)
        assert "paged-kv" in failures()


def test_the_command(paged_kv, monkeypatch):
    done = paged_kv("doctor", "--lang", "ru")
    assert (done.returncode, done.stderr) == (0, "")
    assert "OK   ядро python3: " in done.stdout


def test_the_command_where_something_is_wrong(paged_kv, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "no such backend")
    done = paged_kv("doctor", "--lang", "en")
    assert (done.returncode, done.stderr) == (1, "")
    assert "FAIL matplotlib: " in done.stdout
    assert "\n     -> python -m pip install" in done.stdout
