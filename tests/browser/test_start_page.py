"""The start page leads a student, in either language, to the first exercise."""

import pytest


@pytest.mark.parametrize("language", ["ru", "en"])
def test_a_link_opens_the_exercise(open_in_lab, language):
    exercise = f"exercises/{language}/09.1_block_pool.ipynb"
    notebook = open_in_lab("notebooks/index.ipynb")
    notebook.page.locator(f'a[href*="{exercise}"]').first.click()
    notebook.wait_for(exercise)
