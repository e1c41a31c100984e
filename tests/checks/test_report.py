"""What check, hint and progress show, as text and as HTML."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from paged_kv.checks import CheckFailed, check, hint, progress
from paged_kv.checks.registry import EXERCISES
from paged_kv.checks.report import Note, Report, Section
from paged_kv.messages import language, use_language
from tests.checks.student import ASKED, answer, changed_source, right_source, run_cell

CASES = Path(__file__).parents[2] / "paged_kv" / "checks" / "cases"
UNTOUCHED = """
class BlockPool:
    def __init__(self, num_blocks, n_layers, n_kv_heads, head_dim, block_size=16,
                 dtype=None):
        raise NotImplementedError
    def allocate(self): raise NotImplementedError
    def release(self, block): raise NotImplementedError
    def bytes_per_block(self): raise NotImplementedError

class Sequence:
    def __init__(self, pool, seq_id): raise NotImplementedError
    def __len__(self): raise NotImplementedError
    def append(self, k, v): raise NotImplementedError
    def fork(self, new_id): raise NotImplementedError
    def free(self): raise NotImplementedError

def paged_attention(pool, seq, layer, q, scale): raise NotImplementedError
def reference_attention(K, V, q, scale): raise NotImplementedError
def prefix_sharing(Sequence): raise NotImplementedError
"""
BODIES = {
    "raise": "raise NotImplementedError",
    "pass": "pass",
    "dots": "...",
    "docstring": '"""Do it later."""',
    "return": "return None",
}


def stubs(exercise, body="raise NotImplementedError"):
    source = UNTOUCHED.replace("raise NotImplementedError", body)
    return answer(exercise, source)


def passed(exercise):
    return check(exercise, *answer(exercise, right_source(exercise)))


def failed():
    changes = [("            self.pool.release(block)\n", "            pass\n")]
    return check("09.1", *answer("09.1", changed_source("09.1", changes)))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("exercise", ASKED)
def test_an_untouched_stub_is_not_started(exercise, body):
    report = check(exercise, *stubs(exercise, body))
    assert (report.state, report.code) == ("not started", "not-started")
    assert not report.passed
    assert any(name in report.message for name in ASKED[exercise])


def test_the_next_stub_is_named_when_the_first_class_is_done():
    pool, _ = answer("09.1", right_source("09.1"))
    _, sequence = stubs("09.1")
    report = check("09.1", pool, sequence)
    assert (report.state, report.code) == ("not started", "not-started")
    assert "Sequence.__init__" in report.message
    assert "properties" in repr(report)


def test_a_helper_that_is_still_a_stub_is_named():
    # Exercise 09.3 leaves one method of the class to be written besides fork.
    source = changed_source(
        "09.3",
        [
            (
                "    def _copy_last_block(self):\n",
                "    def _copy_last_block(self):\n        raise NotImplementedError\n",
            )
        ],
    )
    report = check("09.3", *answer("09.3", source))
    assert report.state == "not started"
    assert "Sequence._copy_last_block" in report.message


@pytest.mark.parametrize("exercise", ASKED)
def test_a_pass_says_what_was_verified_and_what_was_not(exercise):
    report = passed(exercise)
    assert (report.state, report.code, report.passed) == ("passed", "passed", True)
    verified, not_verified = report.sections
    assert (verified.label, not_verified.label) == ("Verified", "Not verified")
    assert len(verified.lines) == len(EXERCISES[exercise].cases)
    assert len(not_verified.lines) >= 2
    assert "all tests" not in repr(report).lower()


def test_the_numbers_of_sharing_stand_in_its_report():
    numbers = re.findall(r"\d+", passed("09.3").message)
    assert numbers == ["31", "42", "320", "278", "556", "41", "0"]


@pytest.mark.parametrize("exercise", ASKED)
def test_a_report_is_the_same_each_time(exercise):
    assert repr(passed(exercise)) == repr(passed(exercise))
    assert passed(exercise)._repr_html_() == passed(exercise)._repr_html_()
    assert repr(failed()) == repr(failed())


def test_strict_raises_the_report():
    with pytest.raises(CheckFailed, match="blocks-not-returned") as caught:
        check("09.1", *_failing_objects(), strict=True)
    assert "free()" in str(caught.value)
    assert isinstance(caught.value, AssertionError)
    assert check("09.3", *answer("09.3", right_source("09.3")), strict=True).passed


def _failing_objects():
    changes = [("            self.pool.release(block)\n", "            pass\n")]
    return answer("09.1", changed_source("09.1", changes))


@pytest.mark.parametrize("exercise", ["09.9", "", None, 9.1, ["09.1"]])
def test_an_unknown_exercise_is_named(exercise):
    report = check(exercise, object())
    assert (report.state, report.code) == ("wrong", "unknown-exercise")
    assert "09.1" in report.message
    with pytest.raises(CheckFailed):
        check(exercise, strict=True)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_wrong_number_of_objects_is_named(n):
    report = check("09.1", *[object()] * n)
    assert (report.state, report.code) == ("wrong", "wrong-number-of-objects")
    assert str(n) in report.message
    assert 'check("09.1", BlockPool, Sequence)' in repr(report)


class Tree(HTMLParser):
    """Collects the tags, the root's attributes and the text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.roots, self.text = [], [], ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        if not self.open:
            self.roots.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


@pytest.mark.parametrize("lang", ["ru", "en"])
def test_html_carries_state_code_and_all_of_the_text(lang):
    use_language(lang)
    for report in (check("09.1", *stubs("09.1")), failed(), passed("09.2")):
        tree = Tree(report._repr_html_())
        ((tag, attributes),) = tree.roots
        assert tag == "section"
        assert attributes["data-state"] == report.state.replace(" ", "-")
        assert attributes["data-code"] == report.code
        assert attributes["lang"] == lang
        for line in [report.title, report.message, *_all_lines(report)]:
            assert line.replace("`", "") in tree.text


def _all_lines(report):
    return [line for s in report.sections for line in (s.label, *s.lines)]


def test_html_escapes_whatever_a_student_writes():
    evil = "<script>alert('x')</script>&amp;\"`<b>`"
    report = Report(
        "09.1", evil, "wrong", 'a"b', evil, (Section(evil, (evil,), is_code=True),)
    )
    html = report._repr_html_()
    assert "<script" not in html
    assert "<b>" not in html
    assert Tree(html).roots[0][1]["data-code"] == 'a"b'


def test_a_students_text_reaches_the_page_escaped():
    changes = [
        ("        self.length += 1\n", "        print('<b>bold</b>')\n"),
    ]
    report = check("09.1", *answer("09.1", changed_source("09.1", changes)))
    assert "<b>bold" in repr(report)
    assert "<b>bold" not in report._repr_html_()


def test_both_faces_are_offered():
    for thing in (failed(), hint("09.1", 1), progress()):
        bundle = thing._repr_mimebundle_(include=None, exclude=None)
        assert set(bundle) == {"text/plain", "text/html"}
        assert bundle["text/plain"] == repr(thing)


def test_the_sign_tells_the_states_apart_without_colour():
    signs = set()
    for state in ("not started", "raised", "wrong", "passed"):
        html = Report("09.1", "title", state, "code", "message")._repr_html_()
        signs.add(Tree(html).text.strip()[0])
    assert len(signs) == 4


def test_html_uses_the_colours_of_jupyterlab_with_fallbacks():
    html = failed()._repr_html_()
    used = re.findall(r"var\((--jp-[\w-]+)([,)])", html)
    assert used
    assert all(comma == "," for _, comma in used), used


@pytest.mark.parametrize("lang", ["ru", "en"])
@pytest.mark.parametrize("exercise", ASKED)
def test_hints_say_more_and_more_and_never_all(exercise, lang):
    use_language(lang)
    texts = [repr(hint(exercise, level)) for level in (1, 2, 3)]
    assert len(set(texts)) == 3
    assert "    " not in texts[0]  # no code yet
    code = [line.strip() for line in texts[2].splitlines() if line.startswith("    ")]
    assert any("..." in line or line.startswith("#") for line in code)
    # What stands in a hint does not run as a solution.
    assert not {"return", "def"} & {word for line in code for word in line.split()}
    for level in (1, 2, 3):
        assert Tree(hint(exercise, level)._repr_html_()).roots[0][1]["lang"] == lang


def test_a_hint_that_does_not_exist_is_refused_in_words():
    assert "1, 2" in repr(hint("09.1", 4))
    assert "09.1" in repr(hint("nowhere"))
    assert repr(hint("09.1")) == repr(hint("09.1", 1))


def test_progress_counts_what_passed_last():
    total = sum(not e.optional for e in EXERCISES.values())
    assert repr(progress()).startswith(f"0 exercises of {total} passed")
    passed("09.3")
    assert repr(progress()).startswith(f"1 exercise of {total} passed")
    passed("09.1")
    assert repr(progress()).startswith(f"2 exercises of {total} passed")
    failed()
    assert repr(progress()).startswith(f"1 exercise of {total} passed")
    lines = dict(line.rsplit(": ", 1) for line in repr(progress()).splitlines()[1:])
    assert [state for title, state in lines.items() if title[:4] <= "09.3"] == [
        "not right yet",
        "not checked in this notebook yet",
        "passed",
    ]


@pytest.mark.parametrize(("lang", "word"), [("en", "optional"), ("ru", "по желанию")])
def test_progress_says_which_exercises_are_optional(lang, word):
    use_language(lang)
    for line in repr(progress()).splitlines()[1:]:
        assert (f"({word})" in line) == EXERCISES[line.split()[0]].optional, line


def test_progress_has_russian_plurals():
    use_language("ru")
    assert "Пройдено 0 упражнений" in repr(progress())
    passed("09.1")
    assert "Пройдено 1 упражнение " in repr(progress())
    passed("09.2")
    assert "Пройдено 2 упражнения" in repr(progress())


def test_a_report_keeps_the_language_it_was_made_in():
    use_language("ru")
    report = failed()
    text, html = repr(report), report._repr_html_()
    use_language("en")
    assert (repr(report), report._repr_html_()) == (text, html)
    assert language() == "en"


def test_the_text_twin_fits_a_terminal():
    for line in repr(passed("09.3")).splitlines():
        assert len(line) <= 88


def test_a_note_shows_code_as_code():
    note = Note("title", ("prose with `code`", "    x = 1\n    y = 2"))
    html = note._repr_html_()
    assert "<code>code</code>" in html
    assert "<pre><code>x = 1\ny = 2</code></pre>" in html
    assert "    x = 1" in repr(note)


def test_a_student_never_sees_an_exception():
    source = "class Sequence:\n    fork = append = free = None\nprefix_sharing = None"
    cell = run_cell(source)
    report = check("09.3", cell["Sequence"], cell["prefix_sharing"])
    assert report.state == "wrong"


def test_comments_in_shown_lines_are_translated():
    lines = re.compile(r"\.(?:do|attempt)\(\s*f?\"[^\"\n]*  # ")
    for file in sorted(CASES.glob("*.py")):
        found = lines.search(file.read_text(encoding="utf-8"))
        assert not found, f"{file.name}: {found[0]}…: give the comment as `note`"
