"""Kinds of files recognised by their first bytes, for messages about what Weft does not read."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["EMPTY_ZIP", "NUMPY", "ZIP", "FileKind", "kind_of"]

NUMPY: Final = b"\x93NUMPY"
ZIP: Final = b"PK\x03\x04"
EMPTY_ZIP: Final = b"PK\x05\x06"
_CONVERT: Final = (
    "load it with {0} and save its tensors with weft.save, or with safetensors.torch.save_file"
)
_UNPACK: Final = "unpack it first: {0}"


class FileKind(NamedTuple):
    """A kind of file in words, and what to do with one."""

    name: str
    hint: str


_PICKLE: Final = FileKind(
    "a pickle (of Python, or an old checkpoint of PyTorch), which may run any code when it is read",
    _CONVERT.format("torch.load(..., weights_only=True)") + "; Weft never unpickles",
)
PYTORCH: Final = FileKind(
    "a checkpoint of PyTorch (a zip archive with a pickle)",
    _CONVERT.format("torch.load(..., weights_only=True)"),
)
_HTML: Final = FileKind("a page of HTML, not the file that was to be downloaded",
                        "download it again; the address may need a login")  # fmt: skip
_STARTS: Final[tuple[tuple[bytes, FileKind], ...]] = (
    (b"GGUF", FileKind("a GGUF file (of llama.cpp)", _CONVERT.format("the package gguf"))),
    (b"lmgg", FileKind("a GGML file (of llama.cpp)", "convert it to GGUF, then to safetensors")),
    (b"tjgg", FileKind("a GGML file (of llama.cpp)", "convert it to GGUF, then to safetensors")),
    (b"\x89HDF\r\n\x1a\n", FileKind("an HDF5 file", _CONVERT.format("h5py"))),
    (b"CDF\x01", FileKind("a NetCDF file", _CONVERT.format("scipy.io.netcdf_file"))),
    (b"CDF\x02", FileKind("a NetCDF file", _CONVERT.format("scipy.io.netcdf_file"))),
    (b"MATLAB ", FileKind("a file of MATLAB", _CONVERT.format("scipy.io.loadmat"))),
    (b"PAR1", FileKind("a Parquet file", _CONVERT.format("pyarrow.parquet"))),
    (b"ARROW1", FileKind("an Arrow file", _CONVERT.format("pyarrow"))),
    (b"\x1f\x8b", FileKind("a gzip archive", _UNPACK.format("gunzip, or tar xzf"))),
    (b"BZh", FileKind("a bzip2 archive", _UNPACK.format("bunzip2, or tar xjf"))),
    (b"\xfd7zXZ\x00", FileKind("an xz archive", _UNPACK.format("unxz, or tar xJf"))),
    (b"\x28\xb5\x2f\xfd", FileKind("a Zstandard archive", _UNPACK.format("unzstd"))),
    (b"7z\xbc\xaf\x27\x1c", FileKind("a 7z archive", _UNPACK.format("7z x"))),
    (b"Rar!", FileKind("a RAR archive", _UNPACK.format("unrar x"))),
    (b"version https://git-lfs", FileKind("a pointer of Git LFS, not the file itself",
                                          "fetch the file: git lfs pull")),
    (b"<!DOCTYPE", _HTML), (b"<!doctype", _HTML), (b"<html", _HTML), (b"<HTML", _HTML),
    (b"\x7fELF", FileKind("a program or library (ELF)", "give the file with the tensors")),
    (b"\x89PNG", FileKind("an image (PNG)", "read it with Pillow, then weft.tensor")),
    (b"\xff\xd8\xff", FileKind("an image (JPEG)", "read it with Pillow, then weft.tensor")),
    (b"{", FileKind("JSON (perhaps the index of a model in several files)",
                    "load the files with the tensors, *.safetensors, one by one")),
)  # fmt: skip
_FALLBACK: Final = FileKind("no format that Weft knows",
                            "weft.load reads safetensors, npy and npz")  # fmt: skip
_PROTOCOLS: Final = range(2, 6)  # of pickle


def kind_of(head: bytes, size: int) -> FileKind:
    """Return what a file that begins with `head` and has `size` bytes may be."""
    if not size:
        return FileKind("an empty file", "it was not written to its end, or never downloaded")
    for start, kind in _STARTS:
        if head.startswith(start):
            return kind
    if head[:1] == b"\x80" and len(head) > 1 and head[1] in _PROTOCOLS:
        return _PICKLE
    if head[257:262] == b"ustar":
        return FileKind("a tar archive", _UNPACK.format("tar xf"))
    if head[4:8] == b"TFL3":
        return FileKind("a TensorFlow Lite model", "export its weights as safetensors")
    printable = sum(c in b"\t\n\r" or 32 <= c < 127 for c in head[:64])
    if printable == len(head[:64]):
        return FileKind("text", "read it with numpy.loadtxt, then weft.tensor")
    if size < 8:  # a length that is not there
        return FileKind(f"a file of {size} bytes", "it was not written or downloaded to its end")
    return _FALLBACK
