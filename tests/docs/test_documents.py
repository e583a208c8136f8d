"""The rules by which the examples of the documentation are read and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documents import agree, blocks, examples

TEXT = """\
# A document

<!-- a preparation -->
```console
$ echo one \\
    two
one two
$ echo '{
    2}'
$ cat file
1

2
```

```json
{}
```
"""


def test_a_console_block_has_commands_with_lines_and_outputs(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(TEXT)
    console, text = blocks(document)
    assert (console.language, console.preparation) == ("console", "a preparation")
    assert (text.language, text.text, text.preparation) == ("json", "{}\n", None)
    assert list(examples(console)) == [
        (5, "echo one \\\n    two", "one two\n"),
        (8, "echo '{\n    2}'", ""),
        (10, "cat file", "1\n\n2\n"),
    ]


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ('{"a": 1,\n "b": [2]}', '{"a":1,"b":[2]}'),
        ('{"revision": "0a1b2c3d-0-5-01234567"}', '{"revision": "ffffffff-0-5-89abcdef"}'),
        ('{"seconds": 1.5}', '{"seconds": 2.5}'),
        ("seconds   1.00", "seconds           12.34"),
        ("a\n...\nd", "a\nb\nc\nd"),
        ("a\n...\nd", "a\nd"),
        ("[learner] learns", "[learner] learns"),
    ],
)
def test_what_changes_from_run_to_run_may_differ(expected: str, actual: str) -> None:
    assert agree(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ('{"a": 1}', '{"a": 2}'),
        ('{"a": 1}', '{"a": 1, "b": 2}'),
        ('{"revision": "0a1b2c3d-0-5-01234567"}', '{"revision": "0a1b2c3d-0-6-01234567"}'),
        ('{"seconds": 1.5}', '{"seconds": null}'),
        ('{"probability": 0.5}', '{"probability": 0.50001}'),
        ("a\n...\nd", "a\nb\nc"),
        ("", "a"),
        ("a", ""),
    ],
)
def test_anything_else_may_not(expected: str, actual: str) -> None:
    assert not agree(expected, actual)
