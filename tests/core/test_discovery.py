import sys

import pytest

from plench.discovery import DiscoveryError, find_members


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "made_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.startswith("made_package")]:
        del sys.modules[name]


def label_of(value):
    return value if isinstance(value, str) and value.startswith("label:") else None


def test_members_of_every_file_are_found(package):
    (package / "one.py").write_text("A = 'label:a'")
    (package / "two.py").write_text("B = 'label:b'")
    assert set(find_members("made_package", "thing", label_of)) == {"label:a", "label:b"}


def test_a_duplicate_name_is_an_error_that_names_the_files(package):
    (package / "one.py").write_text("A = 'label:' + 'aa'")
    (package / "two.py").write_text("B = 'label:A_a'")
    with pytest.raises(DiscoveryError, match=r"declared twice: in made_package\.one and made_package\.two"):
        find_members("made_package", "thing", label_of)


def test_a_file_that_fails_to_import_is_an_error_that_names_it(package):
    (package / "broken.py").write_text("1 / 0")
    with pytest.raises(
        DiscoveryError, match=r"thing file made_package\.broken fails to import.*ZeroDivisionError"
    ):
        find_members("made_package", "thing", label_of)
