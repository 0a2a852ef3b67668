"""Ways to damage or forge a file. Each takes good content and a source of chance and returns other content.

Those for one format know its structure: they repair checksums and sizes around the damage, which otherwise
would be all that a reader ever sees.
"""

from __future__ import annotations

import gzip
import io
import pickletools
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from random import Random

Mutation = Callable[[bytes, Random], bytes]

NUMBERS: tuple[int, ...] = (0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 4095, 2**15, 2**16 - 1, 2**16, 2**24, 2**27)
NUMBERS += (2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 8, 2**33, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = (
    "",
    "x",
    "\x1b[2J\x1b]0;owned\x07",
    "../../x",
    "/etc/passwd",
    "\0",
    "ä\ud800",
    "nan",
    "1" * 5000,
    "a" * 300,
)
N_ZEROS = 2**29
MARK = "plench-fuzz-executed"  # made by any forged pickle whose call is carried out


def mutate(content: bytes, own: tuple[Mutation, ...], random: Random) -> bytes:
    """Damage content one to four times, by the format's own mutations and by those that fit any."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        chosen = random.choice(own) if own and random.random() < 0.6 else random.choice(ANY)
        try:
            content = chosen(content, random)
        except Exception:  # damage of before: the structure is no longer there
            content = flip(content, random)
    return content[: 2**22]


# For any file.


def flip(content: bytes, random: Random) -> bytes:
    """Change some bits."""
    damaged = bytearray(content or b"\0")
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def set_bytes(content: bytes, random: Random) -> bytes:
    """Set bytes to values that mean something in many formats."""
    damaged = bytearray(content or b"\0")
    for _ in range(random.choice((1, 2, 4))):
        damaged[random.randrange(len(damaged))] = random.choice((0, 1, 5, 9, 10, 14, 15, 0x7F, 0x80, 0xFF))
    return bytes(damaged)


def set_number(content: bytes, random: Random) -> bytes:
    """Write a number that may be a size, an index or a code."""
    width, order = random.choice((1, 2, 4, 8)), random.choice(("little", "big"))
    number = random.choice(NUMBERS) % 2 ** (8 * width)
    place = random.randrange(max(1, len(content) - width))
    if random.random() < 0.5:
        place = min(place, random.randrange(200))  # heads come first
    written = number.to_bytes(width, order)
    return content[:place] + written + content[place + width :]


def cut(content: bytes, random: Random) -> bytes:
    """Leave out the end."""
    return content[: random.randrange(len(content) + 1)]


def drop(content: bytes, random: Random) -> bytes:
    """Leave out a piece."""
    start, length = random.randrange(len(content) + 1), random.choice((1, 2, 4, 8, 64, 512))
    return content[:start] + content[start + length :]


def repeat(content: bytes, random: Random) -> bytes:
    """Say a piece several times."""
    start, length = random.randrange(len(content) + 1), random.choice((1, 2, 8, 64, 512))
    return content[:start] + content[start : start + length] * random.choice((2, 3, 100)) + content[start:]


def insert(content: bytes, random: Random) -> bytes:
    """Put something in between."""
    place = random.randrange(len(content) + 1)
    return content[:place] + random.randbytes(random.choice((1, 4, 8, 100))) + content[place:]


def move(content: bytes, random: Random) -> bytes:
    """Copy a piece to another place."""
    start, to, length = (random.randrange(len(content) + 1) for _ in range(3))
    piece = content[start : start + min(length, 512)]
    return content[:to] + piece + content[to + len(piece) :]


ANY: tuple[Mutation, ...] = (flip, set_bytes, set_number, cut, drop, repeat, insert, move)


# Packed content: unpacked, damaged and packed again.


def unpack(content: bytes, form: int = zlib.MAX_WBITS) -> bytes:
    """Unpack a few megabytes at most."""
    return zlib.decompressobj(form).decompress(content, 2**22)


def within_gzip(inner: Mutation) -> Mutation:
    """Return the mutation of what a gzip file holds."""

    def apply(content: bytes, random: Random) -> bytes:
        return gzip.compress(inner(unpack(content, 16 + zlib.MAX_WBITS), random), 1)

    return apply


@cache
def zeros() -> tuple[bytes, int]:
    """Very many zeros, packed, and their checksum. Making them takes seconds, so they are made once."""
    stream = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    packed, checksum, piece = b"", 0, bytes(2**20)
    for _ in range(N_ZEROS // len(piece)):
        packed += stream.compress(piece)
        checksum = zlib.crc32(piece, checksum)
    return packed + stream.flush(), checksum


def bomb(content: bytes, random: Random) -> bytes:
    """Add very many zeros, packed by gzip."""
    packed, checksum = zeros()
    head = gzip.compress(b"")[:10]
    added = head + packed + struct.pack("<II", checksum, N_ZEROS)
    return random.choice((content + added, added))


# Zip archives and the arrays in them.


def rebuild_zip(inner: Mutation) -> Mutation:
    """Return the mutation of one entry of a zip archive, whose sizes and checksums are made right again."""

    def apply(content: bytes, random: Random) -> bytes:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = [
                (info.filename, archive.read(info)) for info in archive.infolist() if info.file_size < 2**22
            ]
        chosen = random.randrange(len(entries))
        method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        buffer = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
            warnings.simplefilter("ignore")  # two entries of one name are meant
            for number, (name, data) in enumerate(entries):
                archive.writestr(name, inner(data, random) if number == chosen else data)
                if number == chosen and random.random() < 0.1:
                    archive.writestr(random.choice((name, "other", name + "x", "../x")), data)
        return buffer.getvalue()

    return apply


def patch_zip(content: bytes, random: Random) -> bytes:
    """Change a field in one of the heads of a zip archive."""
    marks = [
        match.start() for match in re.finditer(rb"PK(\x01\x02|\x03\x04|\x05\x06|\x06\x06|\x06\x07)", content)
    ]
    place = random.choice(marks) + random.randrange(4, 46, 2)
    width = random.choice((2, 4))
    number = random.choice((*NUMBERS, 1, 8, 9, 12, 14, 99, 0x20, 0x40, 0x2000))
    return content[:place] + (number % 2 ** (8 * width)).to_bytes(width, "little") + content[place + width :]


def zip_bomb(content: bytes, random: Random) -> bytes:
    """Make an entry very long and nearly nothing packed, or write very many entries."""
    names = re.findall(rb"PK\x01\x02.{42}([ -~]+)", content, re.DOTALL)[:4] or [b"features.npy"]
    packed, checksum = zeros()
    if random.random() < 0.5:
        names, packed, checksum = [b"e%d" % number for number in range(random.choice((100, 20_000)))], b"", 0
    size = random.choice((N_ZEROS if packed else 0, 1000))
    body, directory = bytearray(), bytearray()
    for name in names:
        fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0, checksum, len(packed), size, len(name), 0)
        directory += b"PK\x01\x02" + b"\x14\0" + fields + struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + name
        body += b"PK\x03\x04" + fields + name + packed
    end = struct.pack("<HHHHIIH", 0, 0, len(names) % 2**16, len(names) % 2**16, len(directory), len(body), 0)
    return bytes(body + directory) + b"PK\x05\x06" + end


def rarely(mutation: Mutation) -> Mutation:
    """Return a mutation that is made once in thirty times: what takes long must not take all the time."""

    def apply(content: bytes, random: Random) -> bytes:
        return mutation(content, random) if random.random() < 1 / 30 else random.choice(ANY)(content, random)

    return apply


def forge_npy(content: bytes, random: Random) -> bytes:
    """Change the head of an array: type, order, shape, or its text."""
    start = 10
    length = int.from_bytes(content[8:10], "little")
    head = content[start : start + length].decode("latin1").strip()
    kinds = ("<f8", "|O", "<U99", "<M8[D]", "|V8", "<c16", ">i4", "|b1", "<f3", "[('a', '<f8')]", "(9,)u1")
    change = random.randrange(5)
    if change == 0:
        head = re.sub(r"'descr': '[^']*'", lambda _: f"'descr': '{random.choice(kinds)}'", head)
    elif change == 1:
        sides = ", ".join(str(random.choice(NUMBERS)) for _ in range(random.choice((0, 1, 2, 3, 4, 40, 300))))
        head = re.sub(r"'shape': \([^)]*\)", lambda _: f"'shape': ({sides})", head)
    elif change == 2:
        head = re.sub("False|True", lambda _: random.choice(("False", "True", "0", "None")), head)
    elif change == 3:
        head = head[: random.randrange(len(head))] + random.choice("({['-,:x") * random.choice((1, 300, 5000))
    else:
        head = flip(head.encode("latin1"), random).decode("latin1")
    written = head.encode("latin1", "replace")
    return content[:8] + struct.pack("<H", len(written) % 2**16) + written + content[start + length :]


# Pickles.

HOSTILE = (
    b"cos\nsystem\nX%c\x00\x00\x00touch %b\x85R" % (len(MARK) + 6, MARK.encode()),
    b"cbuiltins\neval\nX\x05\x00\x00\x001+1+1\x85R",
    b"c__builtin__\ngetattr\n",
    b"(ios\nsystem\n",
    b"\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R",
    b"cnumpy\ndtype\nU\x02u1\x85R",
    b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R",
    b"cnumpy.core.multiarray\nscalar\n",
    b"c_codecs\nencode\n",
    b"ccollections\nOrderedDict\n)R",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"N" + b"2\x86" * 40,
    b"}N" + b"2\x86" * 40 + b"K\x01s",
    b"N" + b"\x85" * 20_000,
    b"]" * 20_000,
    b"r\xff\xff\xff\x7f",
    b"j\xff\xff\xff\x7f",
    b"\x8b\xff\xff\xff\x7f",
    b"B\xff\xff\xff\x7f",
    b"\x8e" + b"\xff" * 8,
    b"\x96" + b"\xff" * 7 + b"\x7f",
    b"\x95" + b"\xff" * 8,
    b"I" + b"9" * 10_000 + b"\n",
)


def split_pickle(content: bytes) -> list[bytes]:
    """Return the steps of a pickle."""
    places = [place or 0 for _, _, place in pickletools.genops(content)]
    return [content[start:end] for start, end in zip(places, [*places[1:], len(content)], strict=True)]


def forge_pickle(content: bytes, random: Random) -> bytes:
    """Drop, double, exchange or add steps of a pickle."""
    steps = split_pickle(content)
    for _ in range(random.choice((1, 1, 2, 5))):
        place, other = random.randrange(len(steps)), random.randrange(len(steps))
        change = random.randrange(5)
        if change == 0:
            del steps[place]
        elif change == 1:
            steps[place:place] = steps[other : other + random.choice((1, 5, 50))]
        elif change == 2:
            steps[place], steps[other] = steps[other], steps[place]
        elif change == 3:
            steps.insert(place, random.choice(HOSTILE))
        else:
            steps.insert(place, bytes([random.randrange(256)]))
    return b"".join(steps)


# Tar archives.


def forge_tar(content: bytes, random: Random) -> bytes:
    """Change a head of a tar archive and make its checksum right, or put a head in front of it."""
    starts = [
        place for place in range(0, len(content) - 511, 512) if content[place + 257 : place + 262] == b"ustar"
    ]
    start = random.choice(starts)
    head = bytearray(content[start : start + 512])
    added = b""
    change = random.randrange(4)
    if change == 0:
        head[156] = random.choice(b"0\x0012345678LKxgSVDN")
    elif change == 1:
        size = random.choice(
            (b"%011o\0" % random.choice(NUMBERS[:20]), b"\x80" + b"\xff" * 11, b"-0000000001\0", bytes(12))
        )
        head[124:136] = size[:12]
    elif change == 2:
        name = random.choice(TEXTS).encode("utf-8", "replace")[:100]
        head[: len(name)] = name
    else:
        lines = (
            b"11 path=ab\n",
            b"x path=a\n",
            b"99999 path=x\n",
            b"-1 size=3\n",
            b"20 GNU.sparse.map=1\n",
            b"\n",
            b"14 size=123456",
        )
        body = random.choice((*lines, random.choice(lines) * 50, b"y" * random.choice((100, 2**20))))
        extra = bytearray(512)
        extra[:4] = b"more"
        extra[124:136] = b"%011o\0" % len(body)
        extra[156] = random.choice(b"LKxg")
        extra[257:265] = b"ustar\x0000"
        extra[148:156] = b"%06o\0 " % (256 + sum(extra[:148]) + sum(extra[156:]))
        added = (bytes(extra) + body + bytes(-len(body) % 512)) * random.choice(
            (1, 1, 3000 if len(body) < 100 else 1)
        )
    head[148:156] = b"%06o\0 " % (256 + sum(head[:148]) + sum(head[156:]))
    return content[:start] + added + bytes(head) + content[start + 512 :]


# MATLAB files.


def forge_mat(content: bytes, random: Random) -> bytes:
    """Damage one variable of a MATLAB file, unpacked if it is packed, and put it back with its right size."""
    elements = []
    place = 128
    while place + 8 <= len(content):
        code, size = struct.unpack_from("<II", content, place)
        elements.append((code, content[place + 8 : place + 8 + size]))
        place += 8 + size
    chosen = random.randrange(len(elements))
    code, data = elements[chosen]
    inner = random.choice((set_number, set_number, set_bytes, flip, drop, repeat, cut))
    if code == 15:
        data = zlib.compress(inner(unpack(data), random), 1)
        if random.random() < 0.05:
            packed, _ = zeros()
            data = b"\x78\xda" + packed + bytes(4)  # their checksum is wrong, which is seen at the end only
    else:
        data = inner(data, random)
    elements[chosen] = (code, data)
    return content[:128] + b"".join(struct.pack("<II", kind, len(part)) + part for kind, part in elements)


# Images.


def forge_png(content: bytes, random: Random) -> bytes:
    """Change a chunk of a PNG image and make its checksum right."""
    chunks = []
    place = 8
    while place + 12 <= len(content):
        size = int.from_bytes(content[place : place + 4], "big")
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
        place += 12 + size
    chosen = random.randrange(len(chunks))
    kind, data = chunks[chosen]
    if kind == b"IHDR" and random.random() < 0.7:
        width, height = (random.choice((1, 9, 300, 20_000, 65_535, 2**31 - 1)) for _ in range(2))
        data = struct.pack(">II", width, height) + data[8:]
    elif kind == b"IDAT":
        data = zlib.compress(random.choice((bytes(2**20), flip(unpack(data), random))), 9)
    else:
        data = random.choice(ANY)(data, random)
    chunks[chosen] = (random.choice((kind, kind, kind, b"IEND", b"zTXt", b"iCCP", b"PLTE")), data)
    if random.random() < 0.2:
        chunks.insert(1, (b"zTXt", b"k\0\0\x78\xda" + zeros()[0] + bytes(4)))
    return content[:8] + b"".join(
        len(part).to_bytes(4, "big") + name + part + zlib.crc32(name + part).to_bytes(4, "big")
        for name, part in chunks
    )
