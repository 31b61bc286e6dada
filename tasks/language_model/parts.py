"""The parts of a text (files, members of archives, columns of tables), read line by line.

Nothing is unpacked to disk. Memory holds one line or one batch of rows.
"""

import io
import lzma
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fastweights.host import UserError, describe_os_error

CHUNK = 2**20  # bytes
NEED_PYARROW = "pip install 'pyarrow>=17,<24', or export the text to plain files"
_ROWS = 10_000  # rows of a table per read
_ENCRYPTED = 1  # flag bit of a zip archive member
_DAMAGE = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
    *(EOFError, NotImplementedError),
)


class Part(ABC):
    """A piece of a text."""

    name: str  # for messages
    size: int  # bytes to read

    @abstractmethod
    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes as stored, for a digest."""

    @abstractmethod
    def lines(self, encoding: str, newline: str | None) -> Iterator[str]:
        """Yield the lines with their ends; `newline` is as for `open`.

        Raises:
            UserError: the bytes are not in `encoding`, or the file is damaged; one line.
        """


@dataclass(frozen=True)
class Stream(Part):
    """Plain text: a file, or a member of an archive; `open_bytes` opens it."""

    name: str
    size: int
    open_bytes: Callable[[], AbstractContextManager[BinaryIO]]

    def chunks(self) -> Iterator[bytes]:
        with readable(self.name), self.open_bytes() as stream:
            while chunk := stream.read(CHUNK):
                yield chunk

    def lines(self, encoding: str, newline: str | None) -> Iterator[str]:
        number = 0
        with readable(self.name), self.open_bytes() as stream:
            text = io.TextIOWrapper(stream, encoding=encoding, newline=newline)
            try:
                for number, line in enumerate(text, 1):  # noqa: B007 (named in the message below)
                    yield line
            except UnicodeError as error:
                raise UserError(
                    f"{self.name} is not {encoding} after line {number:,} ({error}): set its "
                    "--encoding, such as latin-1 or utf-16"
                ) from error


@dataclass(frozen=True)
class Rows(Part):
    """The column `text` of a Parquet or Arrow table, with one line of the text per row."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def chunks(self) -> Iterator[bytes]:
        return of_file(self.path).chunks()

    def lines(self, encoding: str, newline: str | None) -> Iterator[str]:
        for row in self._rows():
            if not isinstance(row, str):
                raise UserError(f"{self.name} has non-text values in its column `text`")
            yield row.rstrip("\n") + "\n"

    def _rows(self) -> Iterator[Any]:
        try:
            import pyarrow
            from pyarrow import ipc, parquet
        except ImportError as error:
            raise UserError(f"reading {self.name} needs pyarrow: {NEED_PYARROW}") from error
        with readable(self.name, pyarrow.ArrowException):
            if self.path.suffix == ".parquet":
                table = parquet.ParquetFile(self.path)
                self._check_column(table.schema_arrow.names)
                batches = table.iter_batches(_ROWS, columns=["text"])
            else:
                batches = _arrow_batches(ipc, self.path)
            for batch in batches:
                self._check_column(batch.schema.names)
                yield from batch.column("text").to_pylist()

    def _check_column(self, names: list[str]) -> None:
        if "text" not in names:
            raise UserError(f"{self.name} has no column `text`, only {', '.join(names)}")


def of_file(path: Path) -> Stream:
    """Wrap a plain text file as a part."""
    return Stream(str(path), path.stat().st_size, lambda: path.open("rb"))


def of_bytes(name: str, content: bytes) -> Stream:
    """Wrap a text in memory as a part."""
    return Stream(name, len(content), lambda: io.BytesIO(content))


def members(archive: Path) -> list[Stream]:
    """Return the files in a zip or tar archive, in the archive's order."""
    with readable(str(archive)):
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                files = [info for info in opened.infolist() if not info.is_dir()]
            if any(info.flag_bits & _ENCRYPTED for info in files):
                raise UserError(f"{archive} is encrypted: unpack it, and name the folder")
            return [_zip_member(archive, info) for info in files]
        with tarfile.open(archive, tarinfo=_Header) as opened:
            found = [member for member in opened if member.isfile()]
            while opened.fileobj.read(CHUNK):  # a compressed archive ends with a checksum
                pass
        return [_tar_member(archive, member.name, member.size) for member in found]


class _Header(tarfile.TarInfo):
    """A header that is refused if it is damaged; `tarfile` takes it for the archive's end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_Header":
        try:
            return super().fromtarfile(archive)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:
            raise tarfile.ReadError(str(error)) from error


def _zip_member(archive: Path, info: zipfile.ZipInfo) -> Stream:
    @contextmanager
    def opened() -> Iterator[BinaryIO]:
        with zipfile.ZipFile(archive) as whole, whole.open(info.filename) as stream:
            yield stream

    return Stream(f"{archive}/{info.filename}", info.file_size, opened)


def _tar_member(archive: Path, name: str, size: int) -> Stream:
    @contextmanager
    def opened() -> Iterator[BinaryIO]:
        with tarfile.open(archive) as whole, whole.extractfile(name) as stream:
            yield stream

    return Stream(f"{archive}/{name}", size, opened)


def _arrow_batches(ipc: Any, path: Path) -> Iterator[Any]:
    """Yield batches of the Arrow stream format, as written by `datasets`, or the file format."""
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        if is_file:
            reader = ipc.open_file(file)
            yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            yield from ipc.open_stream(file)


@contextmanager
def readable(name: str, *kinds: type[Exception]) -> Iterator[None]:
    """Convert exceptions from damaged files or the OS in the block to a one-line `UserError`.

    `kinds`: further exceptions that indicate damage.
    """
    try:
        yield
    except UserError:
        raise
    except (*_DAMAGE, *kinds, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise UserError(f"cannot read {name} ({describe_os_error(error)})") from error
        # bz2, gzip and pyarrow raise an `OSError` without a number for damaged content.
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(":")
        raise UserError(f"{name} is damaged ({reason}): download it again") from error
