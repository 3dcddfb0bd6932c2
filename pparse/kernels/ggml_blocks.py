"""Blocks of quantised elements, as ggml stores them, to float32: the values of the package gguf, bit by bit.

What a block holds, as in ggml (``src/ggml-common.h``, ``ggml-quants.c``) and gguf (``quants.py``): a scale ``d`` (f16),
often a minimum ``m``, scales of parts of the block, and of each element a few bits, or its place in a table (`grid`). A
decoder takes blocks, ``uint8`` of shape (blocks, bytes of a block), and fills ``out``, ``float32`` of shape (blocks,
elements of a block). The order of multiplications is that of gguf, as each rounds.
"""

from __future__ import annotations

from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from numpy.typing import NDArray

    Bytes = NDArray[Any]
    Floats = NDArray[Any]
    Decoder = Callable[[Bytes, Floats], None]

# The values that four bits stand for.
_NON_LINEAR: Final = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1_DOUBLED: Final = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _half(blocks: Bytes, at: int) -> Floats:
    """Return the f16 at byte ``at`` of each block, as a column."""
    import numpy as np

    return blocks[:, at : at + 2].copy().view("<f2").astype(np.float32)


def _shifted(packed: Bytes, shifts: tuple[int, ...], mask: int) -> Bytes:
    """Return the parts of bytes: for ``(…, n)``, ``(…, shifts, n)``."""
    import numpy as np

    parts = np.empty((*packed.shape[:-1], len(shifts), packed.shape[-1]), np.uint8)
    for number, shift in enumerate(shifts):
        part = parts[..., number, :]
        np.right_shift(packed, np.uint8(shift), out=part)
        if mask << shift < 0xFF:
            part &= np.uint8(mask)
    return parts


def _bits(packed: Bytes) -> Bytes:
    """Return each bit of bytes, the lowest first: for ``(blocks, n)``, ``(blocks, 8 n)``."""
    import numpy as np

    return np.unpackbits(packed, axis=-1, bitorder="little")


def _pairs(packed: Bytes) -> Bytes:
    """Return the two halves of each byte, the lower first: for ``(blocks, n)``, ``(blocks, 2 n)``."""
    import numpy as np

    halves = np.empty((*packed.shape, 2), np.uint8)
    np.bitwise_and(packed, np.uint8(15), out=halves[..., 0])
    np.right_shift(packed, np.uint8(4), out=halves[..., 1])
    return halves.reshape(len(packed), -1)


# -- plain blocks of 32 ------------------------------------------------------------------------------------------------


def _q4_0(blocks: Bytes, out: Floats) -> None:
    out[...] = _shifted(blocks[:, 2:18], (0, 4), 15).reshape(out.shape)
    out -= 8
    out *= _half(blocks, 0)


def _q4_1(blocks: Bytes, out: Floats) -> None:
    out[...] = _shifted(blocks[:, 4:20], (0, 4), 15).reshape(out.shape)
    out *= _half(blocks, 0)
    out += _half(blocks, 2)


def _five(low: Bytes, high: Bytes) -> Bytes:
    """Return elements of five bits, the fifth of which are in ``high``."""
    codes = _shifted(low, (0, 4), 15).reshape(len(low), 32)
    fifth = _bits(high)
    fifth <<= 4
    codes |= fifth
    return codes


def _q5_0(blocks: Bytes, out: Floats) -> None:
    out[...] = _five(blocks[:, 6:22], blocks[:, 2:6])
    out -= 16
    out *= _half(blocks, 0)


def _q5_1(blocks: Bytes, out: Floats) -> None:
    out[...] = _five(blocks[:, 8:24], blocks[:, 4:8])
    out *= _half(blocks, 0)
    out += _half(blocks, 2)


def _q8_0(blocks: Bytes, out: Floats) -> None:
    import numpy as np

    np.multiply(blocks[:, 2:34].view(np.int8), _half(blocks, 0), out=out)


# -- blocks of 256, with scales of their parts -------------------------------------------------------------------------


def _q2_k(blocks: Bytes, out: Floats) -> None:
    import numpy as np

    scales = blocks[:, :16]
    parts = out.reshape(-1, 16, 16)
    parts[...] = _shifted(blocks[:, 16:80].reshape(-1, 2, 32), (0, 2, 4, 6), 3).reshape(parts.shape)
    parts *= (_half(blocks, 80) * (scales & np.uint8(15)).astype(np.float32))[:, :, None]
    parts -= (_half(blocks, 82) * (scales >> np.uint8(4)).astype(np.float32))[:, :, None]


def _q3_k(blocks: Bytes, out: Floats) -> None:
    import numpy as np

    low = _shifted(blocks[:, 96:104], (0, 4), 15).reshape(-1, 16)
    high = _shifted(blocks[:, 104:108], (0, 2, 4, 6), 3).reshape(-1, 16)
    scales = (low | high << np.uint8(4)).astype(np.float32) - np.float32(32)
    codes = _shifted(blocks[:, 32:96].reshape(-1, 2, 32), (0, 2, 4, 6), 3).reshape(-1, 256)
    third = _shifted(blocks[:, :32], tuple(range(8)), 1).reshape(-1, 256)
    third <<= 2
    codes += third
    parts = out.reshape(-1, 16, 16)
    parts[...] = codes.reshape(parts.shape)
    parts -= 4
    parts *= (_half(blocks, 108) * scales)[:, :, None]


def _scales_and_minima(blocks: Bytes) -> tuple[Floats, Floats]:
    """Return the factors and minima of the eight parts of blocks of Q4_K and Q5_K, six bits each in twelve bytes."""
    import numpy as np

    one, two, rest = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    low, six, upper = np.uint8(15), np.uint8(0x3F), np.uint8(0x30)
    scales = np.concatenate([one & six, (rest & low) | (one >> np.uint8(2) & upper)], axis=1)
    minima = np.concatenate([two & six, (rest >> np.uint8(4)) | (two >> np.uint8(2) & upper)], axis=1)
    factors = _half(blocks, 0) * scales.astype(np.float32)
    return factors[:, :, None], (_half(blocks, 2) * minima.astype(np.float32))[:, :, None]


def _q4_k(blocks: Bytes, out: Floats) -> None:
    factors, minima = _scales_and_minima(blocks)
    parts = out.reshape(-1, 8, 32)
    parts[...] = _shifted(blocks[:, 16:144].reshape(-1, 4, 32), (0, 4), 15).reshape(parts.shape)
    parts *= factors
    parts -= minima


def _q5_k(blocks: Bytes, out: Floats) -> None:
    factors, minima = _scales_and_minima(blocks)
    codes = _shifted(blocks[:, 48:176].reshape(-1, 4, 32), (0, 4), 15).reshape(-1, 8, 32)
    fifth = _shifted(blocks[:, 16:48], tuple(range(8)), 1)
    fifth <<= 4
    codes |= fifth
    parts = out.reshape(codes.shape)
    parts[...] = codes
    parts *= factors
    parts -= minima


def _q6_k(blocks: Bytes, out: Floats) -> None:
    import numpy as np

    codes = _shifted(blocks[:, :128].reshape(-1, 2, 64), (0, 4), 15).reshape(-1, 256)
    high = _shifted(blocks[:, 128:192].reshape(-1, 2, 32), (0, 2, 4, 6), 3).reshape(-1, 256)
    high <<= 4
    codes |= high
    parts = out.reshape(-1, 16, 16)
    parts[...] = codes.reshape(parts.shape)
    parts -= 32
    parts *= (_half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32))[:, :, None]


# -- ternary, and floats of four bits ----------------------------------------------------------------------------------


def _tq1_0(blocks: Bytes, out: Floats) -> None:
    import numpy as np

    codes = np.empty(out.shape, np.uint8)
    for first, count, start, powers in ((0, 32, 0, 5), (32, 16, 160, 5), (48, 4, 240, 4)):
        for number in range(powers):  # five ternary digits in a byte, as a fraction of 256
            at = start + number * count
            np.multiply(blocks[:, first : first + count], np.uint8(3**number), out=codes[:, at : at + count])
    out[...] = (codes.astype(np.uint16) * np.uint16(3)) >> np.uint16(8)
    out -= 1
    out *= _half(blocks, 52)


def _tq2_0(blocks: Bytes, out: Floats) -> None:
    out[...] = _shifted(blocks[:, :64].reshape(-1, 2, 32), (0, 2, 4, 6), 3).reshape(out.shape)
    out -= 1
    out *= _half(blocks, 64)


@cache
def _fours(values: tuple[int, ...]) -> Floats:
    import numpy as np

    return np.array(values, np.float32)


@cache
def _e8m0_halved() -> Floats:
    """Return half of the power of two that each byte stands for."""
    import numpy as np

    bits = np.arange(256, dtype=np.uint32)
    return np.where(bits < 2, np.uint32(0x200000) << bits, (bits - 1) << np.uint32(23)).astype(np.uint32).view("f4")


@cache
def _ue4m3_halved() -> Floats:
    """Return half of the float of eight bits, without its sign, that each byte stands for."""
    import numpy as np

    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, codes & 7
    values = np.where(exponent == 0, fraction * 2.0**-10, (1 + fraction / 8) * 2.0 ** (exponent - 8.0))
    values[[0, 0x7F]] = 0
    return values.astype(np.float32)


def _mxfp4(blocks: Bytes, out: Floats) -> None:
    _take(_fours(_E2M1_DOUBLED), _shifted(blocks[:, 1:17], (0, 4), 15), out)
    out *= _e8m0_halved()[blocks[:, :1]]


def _nvfp4(blocks: Bytes, out: Floats) -> None:
    parts = out.reshape(-1, 4, 16)
    _take(_fours(_E2M1_DOUBLED), _shifted(blocks[:, 4:36].reshape(-1, 4, 8), (0, 4), 15), out)
    parts *= _ue4m3_halved()[blocks[:, :4]][:, :, None]


# -- places in tables --------------------------------------------------------------------------------------------------


def _take(table: Floats, places: Bytes, out: Floats) -> None:
    """Fill ``out`` with the rows of ``table`` at ``places``, which are all in it."""
    table.take(places, axis=0, out=out.reshape(*places.shape, *table.shape[1:]), mode="clip")


def _multiply(out: Floats, factors: Floats) -> None:
    """Multiply each of the equal parts of a block by its factor."""
    parts = out.reshape(*factors.shape, out.shape[1] // factors.shape[1])
    parts *= factors[:, :, None]


def _apply_signs(out: Floats, negative: Bytes) -> None:
    """Turn the sign of elements where ``negative`` is 1; before they are multiplied by what may not be a number."""
    import numpy as np

    signs = negative.astype(np.uint32)
    signs <<= 31
    bits = out.view(np.uint32)
    bits ^= signs.reshape(bits.shape)


def _signs_of_seven(words: Bytes) -> Bytes:
    """Return the signs of 32 elements from words with four times seven bits; each eighth makes their number even."""
    import numpy as np

    sevens = np.empty((*words.shape, 4), np.uint8)
    for number in range(4):
        np.bitwise_and(words >> np.uint32(7 * number), np.uint32(127), out=sevens[..., number], casting="unsafe")
    return _bits(_with_parity()[sevens])


@cache
def _with_parity() -> Bytes:
    import numpy as np

    return np.array([value | value.bit_count() % 2 << 7 for value in range(128)], np.uint8)


def _iq2_xxs(blocks: Bytes, out: Floats) -> None:
    import numpy as np

    words = blocks[:, 2:66].copy().view("<u4").reshape(-1, 8, 2)
    _take(grid("IQ2_XXS"), blocks[:, 2:66].reshape(-1, 8, 8)[:, :, :4], out)
    _apply_signs(out, _signs_of_seven(words[:, :, 1]))
    scales = np.float32(0.5) + (words[:, :, 1] >> np.uint32(28)).astype(np.float32)
    _multiply(out, _half(blocks, 0) * scales * np.float32(0.25))


def _iq2_xs(blocks: Bytes, out: Floats) -> None:
    import numpy as np

    words = blocks[:, 2:66].copy().view("<u2")
    _take(grid("IQ2_XS"), words & np.uint16(511), out)
    _apply_signs(out, _bits(_with_parity()[words >> np.uint16(9)]))
    scales = np.float32(0.5) + _pairs(blocks[:, 66:74]).astype(np.float32)
    _multiply(out, _half(blocks, 0) * scales * np.float32(0.25))


def _iq2_s(blocks: Bytes, out: Floats) -> None:
    import numpy as np

    high = (blocks[:, 66:74, None] >> np.arange(0, 8, 2, dtype=np.uint8) & np.uint8(3)).reshape(-1, 32)
    _take(grid("IQ2_S"), blocks[:, 2:34] | high.astype(np.uint16) << np.uint16(8), out)
    _apply_signs(out, _bits(blocks[:, 34:66]))
    scales = np.float32(0.5) + _pairs(blocks[:, 74:82]).astype(np.float32)
    _multiply(out, _half(blocks, 0) * scales * np.float32(0.25))


def _iq3_xxs(blocks: Bytes, out: Floats) -> None:
    import numpy as np

    words = blocks[:, 66:98].copy().view("<u4")
    _take(grid("IQ3_XXS"), blocks[:, 2:66], out)
    _apply_signs(out, _signs_of_seven(words))
    scales = np.float32(0.5) + (words >> np.uint32(28)).astype(np.float32)
    _multiply(out, _half(blocks, 0) * scales * np.float32(0.5))


def _iq3_s(blocks: Bytes, out: Floats) -> None:
    import numpy as np

    high = _bits(blocks[:, 66:74]).astype(np.uint16)
    _take(grid("IQ3_S"), blocks[:, 2:66] | high << np.uint16(8), out)
    _apply_signs(out, _bits(blocks[:, 74:106]))
    scales = np.float32(1) + np.float32(2) * _pairs(blocks[:, 106:110]).astype(np.float32)
    _multiply(out, _half(blocks, 0) * scales)


def _iq1_s(blocks: Bytes, out: Floats) -> None:
    import numpy as np

    words = blocks[:, 34:50].copy().view("<u2")
    high = (words[:, :, None] >> np.arange(0, 12, 3, dtype=np.uint16) & np.uint16(7)).reshape(-1, 32)
    _take(grid("IQ1_S"), blocks[:, 2:34] | high << np.uint16(8), out)
    parts = out.reshape(-1, 8, 32)
    parts += np.where(words & np.uint16(0x8000), np.float32(-0.125), np.float32(0.125))[:, :, None]
    scales = np.uint16(2) * (words >> np.uint16(12) & np.uint16(7)) + np.uint16(1)
    parts *= (_half(blocks, 0) * scales.astype(np.float32))[:, :, None]


def _iq1_m(blocks: Bytes, out: Floats) -> None:
    import numpy as np

    words = blocks[:, 48:56].copy().view("<u2")
    tops = words & np.uint16(0xF000)  # a quarter of the scale is in each
    scale = tops[:, :1] >> np.uint16(12) | tops[:, 1:2] >> np.uint16(8) | tops[:, 2:3] >> np.uint16(4) | tops[:, 3:]
    threes = (words[:, :, None] >> np.arange(0, 12, 3, dtype=np.uint16) & np.uint16(7)).reshape(-1, 16)
    factors = scale.view(np.float16).astype(np.float32) * (np.uint16(2) * threes + np.uint16(1)).astype(np.float32)
    high = _pairs(blocks[:, 32:48])
    _take(grid("IQ1_S"), blocks[:, :32] | (high & np.uint8(7)).astype(np.uint16) << np.uint16(8), out)
    parts = out.reshape(-1, 32, 8)
    parts += np.where(high & np.uint8(8), np.float32(-0.125), np.float32(0.125))[:, :, None]
    _multiply(out, factors)


def _iq4_nl(blocks: Bytes, out: Floats) -> None:
    _take(_fours(_NON_LINEAR), _shifted(blocks[:, 2:18], (0, 4), 15), out)
    out *= _half(blocks, 0)


def _iq4_xs(blocks: Bytes, out: Floats) -> None:
    import numpy as np

    words = blocks[:, 2:4].copy().view("<u2")
    high = (words >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)).astype(np.uint8)
    scales = (_pairs(blocks[:, 4:8]) | high << np.uint8(4)).astype(np.float32) - np.float32(32)
    _take(_fours(_NON_LINEAR), _shifted(blocks[:, 8:136].reshape(-1, 8, 16), (0, 4), 15), out)
    _multiply(out, _half(blocks, 0) * scales)


def q8_0_of(values: Floats) -> Bytes:
    """Return blocks of Q8_0 for float32 of shape (blocks, 32)."""
    import numpy as np

    with np.errstate(all="ignore"):
        largest = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
        scaled = values * np.where(largest == 0, np.float32(0), np.float32(1) / largest)
        size = np.abs(scaled)
        whole = np.floor(size)
        whole += np.floor(np.float32(2) * (size - whole))  # halves are rounded away from zero
        blocks = np.empty((len(values), 34), np.uint8)
        blocks[:, :2] = largest.astype("<f2").view(np.uint8)
        blocks[:, 2:] = (np.sign(scaled) * whole).astype(np.int8).view(np.uint8)
    return blocks


DECODERS: Final[dict[str, Decoder]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
    "MXFP4": _mxfp4,
    "NVFP4": _nvfp4,
    "IQ2_XXS": _iq2_xxs,
    "IQ2_XS": _iq2_xs,
    "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs,
    "IQ3_S": _iq3_s,
    "IQ1_S": _iq1_s,
    "IQ1_M": _iq1_m,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
}
"""By ggml's name of the type, what decodes its blocks."""

HALVES: Final = {"Q4_0": (0,), "Q8_0": (0,), "Q4_K": (0, 2), "Q6_K": (208,), "MXFP4": (), "NVFP4": ()}
"""Where the f16 numbers of a block are, which big-endian files have swapped; other types do not occur in such files."""


def swapped(name: str, blocks: Bytes) -> Bytes:
    """Return blocks of a big-endian file as those of a little-endian one."""
    blocks = blocks.copy()
    for at in HALVES[name]:
        blocks[:, [at, at + 1]] = blocks[:, [at + 1, at]]
    return blocks


# -- The tables of ggml's quantised types: rows of four or eight values, of which blocks name the number ---------------

# As in ggml (``src/ggml-common.h``: ``iq2xxs_grid`` and so on). The values of a row are written in two or three bits
# each, the first in the lowest, and make a word; the words of a table increase. Here are their differences: first the
# low bytes of all, then the high bytes, compressed with zlib and written in base 85.

# Elements of a row, bits of each, and what these stand for; and the differences.
_ROWS: Final = {
    "IQ2_XXS": (8, 2, (8, 25, 43)),
    "IQ2_XS": (8, 2, (8, 25, 43)),
    "IQ2_S": (8, 2, (8, 25, 43)),
    "IQ3_XXS": (4, 3, (4, 12, 20, 28, 36, 44, 52, 62)),
    "IQ3_S": (4, 3, (1, 3, 5, 7, 9, 11, 13, 15)),
    "IQ1_S": (8, 2, (-1, 0, 1)),
}
_STEPS: Final = {
    "IQ2_XXS": (
        "c-muNVrFJyXXasIV-jcP;oxMJVd9X8XXatmb`i;7Qb?$0<`D#nu}LU0^N7R%X*FeW!3uT*7ljyBpok<;r&*27A)&WGb@B=-JgnIq5(ZpqO"
        "B8o=NU*Ay&+wWj_L`Z;z_Ffn_Qv&099FXOOv~kWF#QLLiLG)})~S#v*{~O4F$W(P(2@cLM|sv7ehWUK85|M`l9fVt7=db8cSmq49`-Ka;N"
        ")OW;Ha@ndi$TL;(PEKK@RUbC;splXv_#b?6H8Ao2h8uJ|+%x$0iYtiyuI~P*~vRS8A@Xh>7<zkBCfSY1Yx*N=m#2^B?({wtSbc*up>nFcK"
        "-lid&iyiyD|1Bap!;ir)ezthO*Bl(52ufP5x#Yz|~(WJIW9U}R=s1Dnjk003HUK5z"
    ),
    "IQ2_XS": (
        "c-muNVrFJyXJ%q%2Qnm~G$*qRm}F&7go*%_K!kWWB$;^%AWTJO9#(Cxax_g$T#Cpl1mzo<dBmicoN6G(@UY4N4bf2G3TNgqaO5ag;K<`jL"
        "^FbiOB~q<0}-Zdps@xD3t&R5>>@HiV+{_7nC@WaVbT*Zs$xxi9T5(-0;ESF5lC>z&Q^-kh-BuG6hGi7=$;|j6UD(KW@;>TOrt^~iH!->?J"
        "(CN*~}^%4>Vs~`~WmOz^=(<<`I#JO5?KP*$7g?&o@udm`8H<A4C8dG=hSLX`f44I4A@Z6cyq*DmZ4kTgHp%@_RO_F*(<O4B}H!4p&k0$P@"
        "czz#1Q$x%;6X-#kPB7%-_Zg@gPp$gx}@fk}=7=np1lZ3WG8m&D?rX&kbqYD{WzGI1PyLO>Y<F})fkr%%S^toA${7t@*63xqB{<Gp~1jY*8"
        "FY$Jzn6cd|Ln8Je43&uraOl%b#F%3+Mn9?N~C<cs_t7E0W2u8x@Fyb^qltNE367&Tlb}l0;k_beQiJ*%Zv6_TtHCz!BHa9VXArb%pLe@(Q"
    ),
    "IQ2_S": (
        "c-qZV&r1S96n1BLt~(4$hgR1XwI4<pffPhVbm$OBHzC$S*y<2PKkyPkbTQ~Zh;E*RZguMr_^0(|XJ?%??I8W~;EZqH``-6`@0lQ!5|a{Y;"
        ">8J13(stDasV$1y5W-vn8^v{v?-HVHi#|)u(Usbp}<{PXazMg2wFpl&5uGLai6BV6?KGcKNT{zC;C&XC=)ZS37Srl`Pyl}d0v%DT`b-@CR"
        "X;oq+kL^bWWG_&Lc?b0l`#Ju2#HIX;D4iMOn`JF|XRsx+>I>aT$|}cu}|-;IUki<oOyY>?`AjG_&(<?C5kQ=ZzAAJY46t=g3V+QK-$wrof"
        "dEmNu8TI$<q$p-+CKXP>RWRS3Nc%qTa}RsDTVf3?r?s}~>Cz)Zey+R3(uJ@?_;!k}LCo6QTedd|fxTFSyz`ozgOM_#)=XdqQqs9Zf>Qogr"
        "xTFLo-kc`XXswL#X@@PbG7>);Eipz^4SsccZ-3TE)Il#J4H_Pv<WTE6sJg&<QQdk#@P7Ve<Y*_wIp(Es;c{OXRCH{yhoJ2kKRPLm3lNw2}"
        "NW5B`YC3Cgh1=KVdt#I1;Y{MYKgM5z!GDlpd@oC5oRrD`GEd_tXJ(9<1LIT~>X`fmk}w8l6g1$=B15nK07}YE2m"
    ),
    "IQ3_XXS": (
        "c-rNSQBQ<05QMM8(gjMF3aveZcfg$_Xh@9s?3?;_@&ErDi+{sSCfS)xzBvFnNP)`-P<oj%u&Ij_GZ<89A+2DpozG1T(w%#co)E<C?Iaj=1"
        "T$WD&le3Ttuu68sO{>TjDID{$^l4d?nxEkgtW?frj;f+`l|neiI4kYu=$QK=#kstn)ajVw66Q14NLGwP}9vf%IUlFFq=ujErV<^7TU!@#^"
        "U*uwu|_)%H|-a@jO52?`eKpWCK*|*6O9t@2!N%4QM|P|NMRdlN}G4"
    ),
    "IQ3_S": (
        "c-rle*-is73`NQHHsfqF?X+}Qq#}?Iyd(bq&v43TKwc6@_PxjUT}p(M5`e@ipm+$3X#8<vA_iM!(Zom;A+e66N|Q3dK+33K${bH6?T&)TX"
        "LQMgwsynqr}B2w99H3g2AVa6Ba4w5n!;&NC^`8+2))FzY7V3d3zE|<v%fP{JPy#pt4_a?7*e4;?iyVYlm>rPT!<WEaQ5hjcpjzNvd(10JD"
        "JQi<vKz9i8rpu@?b;I#xw}76JP<cI7bj2?#2>sGg#ZC!nP_`i#qpuJYEAgzeXqFZ??EZwMv8=MA)U178wluibGC&fxqnQc9EQQ*N}|5659"
        "yo`Kq&v)_Y04N{QhVFK^|D?<?B(nCxj;?D>4qEIJkGU#&OVx6|VXzL@4nD7skgcp96tb-z$M$Eq)%%k}>K?*IJh^8;e|55W"
    ),
    "IQ1_S": (
        "c-qxf?QYvf5X^p&C-N*>NK@JpW!ZoWr*V+iQECxzfCi3h$LKTk%{zNXN^;v@O#nFt1mDNr?(FRB@)e74sWlh8h{DYRi`sWLgso8BnM}k=V"
        "P5+EX1rg-P+N;dsaoRS7hHBBT1D?e?1iYoL2FhJ)>3+y_E-_iw~zK#B8~!?bW!Zf&a3SpY;aRk*N|fI7HHyr^q>oOnznb8EG0TvQrOno<A"
        "H|-`VJ_F9fqx@66MJgEpQ`T@ygTcO=<uQwou}X5x1R{>hQ7G-<*VPCRo+UBc;QZnS^tyRIsG{-I2}H4cssV@%v7LG<I)I=lCqWVkcqt$Ox"
        "fJ_Rz_X*(wkcF!^*e<+C9jXUz02GXX3E730=Pi%Yhcsb1BE#J=2?*d%u2ZqtC$RZf*7c(9<KV+?I(5vLcPKl~u0n#+j#))W?8Rd>5W$jpQ"
        "PjNffQ=nK4c<#Y&K(`L9zf%gh)&7}v0=MNU_#wkEZCrr9QBUC%jC=lGx?_Q*CCRW*bJ?nqc<G~D7gPA!sfcBBbDw(zEzf+#5Cpq0R3(srS"
        "I;92;yAE;cG@L2~j99l(tzMR;Gm)wTrg|kU)XjKqR%St=MYK!U-SFuHd-9cC&-$z(^9YvXMmfXJHQ#4Z!9{7vdVuO4IbX;rEOQ=floDRfh"
        "Rh~%jyfw<pD5<sH0u$9$;ncN)`rX@a<_E`OZ$=?!fnHjui;C_P2z2h6%X<qtxq&R*+JG*Nh`JBi%kMAlgT3234!1PjJkw(b&B1;Q$JA+=|"
        "#NNBP)y`31o=_mrOeeNhqI_c%!9uWjT4%^hrdKRM2Cn6ISyg_)NGrxgtYDhF_q(ugF7ztxcnEY}pmg*ipD9`qZ*=Jt{~N5liIn^S}Yzl(8"
        "<DP}-ax7bYiY;0iuUW&MiOAlEW<v7BxI!X?y#S)L4aJ>jB81@+$eR~W)kMY^0S$D6TfT%pg}#<v}e*(rt$I`r}0RJ=m}ZLJ?LGLO{tcWw6"
        "pN{k+V?0}@YJW-~Pmb_x%DD<d{IH~&4OY5^YYP-eY&68)Bk1M&DJ)6qH@AjG;CB)~$TbCBOg@&2u6>F`gEa(+SNqyFPtkr-@x`tnW^k$Oj"
        "yc#qFdsurThqa9pH>gtkUpkUW7JT8AUZV(F7D-Ir?NR1z6qq2S9$9p#9m-MBxzDQGj3Q0v`Bo@C7F+*vp<cJg$E%dh<kB1QVV?xK+OhyG!"
        "|i(s>DzZvv&tU@7n8|9hvJ{8LDcbM(fu{BFbsm2=NUTS$<xpkdy{bB%gS7yJc{P(S@Z@Yy=%<nbyYm<Otw{e^}YV+V2|-<2StB~cy?G2--"
        "iFqi?7zVN3fR<@rOodFPk_zV0*lPf&9H1fPNUY9{LmXKcD{%H@{H@"
    ),
}


@cache
def grid(name: str) -> NDArray[Any]:
    """Return the table of the type ``name``, as float32."""
    from base64 import b85decode
    from zlib import decompress

    import numpy as np

    width, bits, values = _ROWS[name]
    steps = np.frombuffer(decompress(b85decode(_STEPS[name])), np.uint8).reshape(2, -1).astype(np.uint32)
    words = np.cumsum(steps[0] | steps[1] << np.uint32(8), dtype=np.uint32)
    codes = words[:, None] >> np.arange(0, width * bits, bits, dtype=np.uint32) & np.uint32((1 << bits) - 1)
    rows: NDArray[Any] = np.array(values, np.float32)[codes]
    return rows
