"""Small WikiTexts in all formats in which people store them."""

import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

TEXT = {  # blank lines, capitals, a rare word, a line separator that ends no line
    "train": " \n = The Cat = \n \n the cat sat on the <unk> mat . \n The cat sat .\u2028the \n",
    "valid": " \n the cat sat on a dog . \n",
    "test": " \n = A Dog = \n the the the \n",
}
NAMES = {"train": "train", "valid": "validation", "test": "test"}


def plain(folder: Path, pattern: str, text: Mapping[str, str] = TEXT) -> Path:
    """Write one file a split, named by `pattern`, and return their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, content in text.items():
        (folder / pattern.format(split)).write_text(content, newline="")
    return folder


def zipped(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "wikitext-2-v1.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/wikitext-2/._wiki.train.tokens", b"\0\1")
        for split, content in TEXT.items():
            archive.writestr(f"wikitext-2/wiki.{split}.tokens", content)
    return folder / "wikitext-2-v1.zip"


def tarred(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "wikitext-2.tar.gz", "w:gz") as archive:
        for split, content in TEXT.items():
            info = tarfile.TarInfo(f"wikitext-2/wiki.{split}.tokens")
            info.size = len(content.encode())
            archive.addfile(info, io.BytesIO(content.encode()))
    return folder / "wikitext-2.tar.gz"


def rows(text: str) -> list[str]:
    """Return rows as on the hub: a blank line is an empty row; others keep their line end."""
    return [line + "\n" if line.strip() else "" for line in text.split("\n")[:-1]]


def parquet(folder: Path) -> Path:
    import pyarrow
    from pyarrow import parquet

    inner = folder / "wikitext-2-v1"
    inner.mkdir(parents=True)
    for split, content in TEXT.items():
        every = rows(content)
        pieces = [every[:2], every[2:]] if split == "train" else [every]
        for number, piece in enumerate(pieces):
            name = f"{NAMES[split]}-{number:05d}-of-{len(pieces):05d}.parquet"
            parquet.write_table(pyarrow.table({"text": piece}), inner / name)
    return folder


def saved_to_disk(folder: Path) -> Path:
    import pyarrow
    from pyarrow import ipc

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(NAMES.values())}))
    for split, content in TEXT.items():
        inner = folder / NAMES[split]
        inner.mkdir()
        table = pyarrow.table({"text": rows(content)})
        with ipc.new_stream(inner / "data-00000-of-00001.arrow", table.schema) as writer:
            writer.write_table(table)
    return folder


FORMS: dict[str, Callable[[Path], Path]] = {
    "tokens": lambda folder: plain(folder, "wiki.{}.tokens"),
    "transformer-xl": lambda folder: plain(folder, "{}.txt"),
    "below": lambda folder: plain(folder / "wikitext-2", "wiki.{}.tokens").parent,
    "zip": zipped,
    "zip in a folder": lambda folder: zipped(folder).parent,
    "tar.gz": tarred,
}
TABLES = {"parquet": parquet, "save_to_disk": saved_to_disk}
