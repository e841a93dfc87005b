"""How is a text kept for which there is no room? PURE.

Node conditions, pages of detectors, providerIDs and boot IDs have no length that anybody enforces, but what
is written down has. A text for people is cut. A name must stay the same one: two that differ have to differ
afterwards, too, so a part of it gives way to a digest of the whole.
"""

from __future__ import annotations

import hashlib
import json
import re

LONGEST_TYPE, LONGEST_REASON = 316, 256
"""Bytes of a fault's type and reason, as JSON. A condition of Kubernetes' own rules has a type of at most 316
(apimachinery, ``metav1.Condition``). The reason is on a record several times, and a closed one has 4 KiB."""
LONGEST_BOOT = 128
"""Characters of a boot ID or a system UUID. Linux's have 36."""
LONGEST_ID = 512
"""Characters of a providerID, of a machine's own ID and of its group."""
MOST_WORDS = 10
"""Words by which a provider finds a machine again, each as long as an ID may be."""
LONGEST_OBJECT = 253
"""Characters of an object's name in Kubernetes."""
LONGEST_WORDS = 1024
"""Characters of what a person says who pauses or releases."""
MARK = "~"
"""Around the digest. It means nothing in a shell pattern, and no name of Kubernetes or of a cloud has it."""
DIGITS = 12
"""Characters of the digest: 48 bits."""
_as_json = json.JSONEncoder(separators=(",", ":")).encode
ESCAPED = re.compile("[<>&]")


def size(value: object) -> int:
    """The most bytes that the API server may need for ``value``, whichever way it escapes it."""
    text = _as_json(value)
    return len(text) + 5 * len(ESCAPED.findall(text))


def shortened(text: str, longest: int) -> str:
    """The beginning of ``text``, of at most so many bytes."""
    while (long := size(text)) > longest:
        text = text[: max(0, len(text) * longest // long - 1)]
        if not text:
            break
    return text


_ZEROS = re.compile("^0+(?=[0-9A-Fa-f]{4}:)")


def address(word: str) -> str:
    """``0000:61:00.0`` of ``00000000:61:00.0``: an address on the bus with no more of its domain than it
    needs. Any other word as it is."""
    return _ZEROS.sub("", word)


def without_uuid(device: str) -> str:
    """``GPU 3 0000:61:00.0`` of ``GPU 3 GPU-604ac76c 00000000:61:00.0``: by its address on the bus a GPU is
    known again, also on another host. Of other names their first two words; one of labels stays as it is."""
    if "=" in device:
        return device
    words = device.split(" ")
    return " ".join([*words[:2], *(address(word) for word in words[2:] if ":" in word)])


def named(text: str, longest: int) -> str:
    """``text`` as a name of at most ``longest`` bytes (at least 40) as JSON: as it is, where it fits.

    Of a longer one the begin and the end are kept, by which patterns mostly match, with a digest of the whole
    between them. The same text has always the same name, and what was shortened is not shortened again.
    """
    each = 6 if text.isascii() else 12  # bytes that one character may have, escaped
    if len(text) <= longest // each or size(text) <= longest:
        return text
    left = longest - DIGITS - 2 * len(MARK)
    begin = shortened(text, left * 2 // 3)
    end = shortened(text[: -len(text) // 3 - 1 : -1], left // 3)[::-1]
    return MARK.join((begin, _digest(text), end))


def identified(text: str, longest: int) -> str:
    """``text`` as an ID of at most ``longest`` characters: as it is, or its begin and a digest of the whole.

    Its end goes, so that what names another object by its last part is not taken for a whole ID.
    """
    if len(text) <= longest:
        return text
    return f"{text[: longest - DIGITS - len(MARK)]}{MARK}{_digest(text)}"


def object_name(text: str, longest: int = LONGEST_OBJECT) -> str:
    """``text``, the name of an object, as a part of another one's name: at most ``longest`` characters."""
    if len(text) <= longest:
        return text
    return f"{text[: longest - DIGITS - 1].rstrip('.-')}-{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:DIGITS]
