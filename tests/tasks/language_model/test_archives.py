"""Archives of texts: a damaged one is refused, whatever its form."""

import io
import tarfile
from pathlib import Path
from random import Random

import pytest

from fastweights.host.errors import UserError
from fastweights.tasks.language_model.source import find_source


def packed(path: Path, mode: str, files: int = 20) -> list[int]:
    """Write an archive of random texts; return where the headers of its files begin."""
    random = Random(1)
    with tarfile.open(path, mode) as archive:
        for number in range(files):
            text = " ".join(str(random.random()) for _ in range(100)).encode()
            about = tarfile.TarInfo(f"{number}.txt")
            about.size = len(text)
            archive.addfile(about, io.BytesIO(text))
    with tarfile.open(path) as archive:
        return [member.offset for member in archive]


@pytest.mark.parametrize("names", ["{}.txt", "wiki.{}.tokens"])
def test_an_archive_of_the_current_folder_is_a_text(names, tmp_path):
    """As `tar -cf a.tar .` makes it; hidden files and folders are left out."""
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for split in ("train", "valid", "test"):
            for folder in (".", "./.hidden"):
                about = tarfile.TarInfo(f"{folder}/{names.format(split)}")
                about.size = 6
                archive.addfile(about, io.BytesIO(b"words\n"))
    files = [part.name for _, part in find_source(tmp_path / "a.tar", 0.1).files]
    assert len(files) == 3 and not any(".hidden" in name for name in files)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("number", [0, 1, 10, 19])
def test_a_damaged_header_does_not_end_a_tar_archive(number, tmp_path):
    headers = packed(tmp_path / "a.tar", "w")
    assert len(find_source(tmp_path / "a.tar", 0.1).files) == 20
    flip(tmp_path / "a.tar", headers[number] + 2)
    with pytest.raises(UserError, match=r"a\.tar is damaged .*: download it again"):
        find_source(tmp_path / "a.tar", 0.1)


def test_a_header_that_is_cut_off_does_not_end_a_tar_archive(tmp_path):
    last = packed(tmp_path / "a.tar", "w")[-1]
    (tmp_path / "a.tar").write_bytes((tmp_path / "a.tar").read_bytes()[: last + 100])
    with pytest.raises(UserError, match=r"a\.tar is damaged"):
        find_source(tmp_path / "a.tar", 0.1)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("form", ["gz", "bz2", "xz"])
def test_a_damaged_byte_of_a_compressed_archive_is_noticed(form, share, tmp_path):
    path = tmp_path / f"a.tar.{form}"
    packed(path, f"w:{form}")
    assert len(find_source(path, 0.1).files) == 20
    flip(path, round(share * path.stat().st_size))
    with pytest.raises(UserError, match=rf"a\.tar\.{form} is damaged .*: download it again"):
        find_source(path, 0.1)
