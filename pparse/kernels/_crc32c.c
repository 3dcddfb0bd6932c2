/* CRC-32C for CPython: the fast twin of crc32c.py, which tells the algorithm. Module pparse.kernels._crc32c:
 * crc32c(buffer, crc=0).
 *
 * The processor's own instruction does eight bytes at a time where there is one (SSE4.2, asked for at run time; ARMv8,
 * known when this is built); elsewhere eight tables do. The instruction takes three cycles but begins one in each, so
 * long buffers are taken as three stretches side by side, whose sums are joined by a table that moves a sum over the
 * bytes of one stretch.
 *
 * C99 and the stable ABI of CPython, from 3.11 (setup.py defines Py_LIMITED_API), so that a build serves later versions too;
 * interpreters without the GIL have no stable ABI and get a build of their own. Nothing here depends on the byte order of
 * the machine but load64, which minds it.
 */

#include <Python.h>

#include <stdint.h>
#include <string.h>

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define HARDWARE 1
#define HARDWARE_FUNCTION __attribute__((target("sse4.2")))
#include <nmmintrin.h>
#define CRC_WORD(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define CRC_BYTE(crc, byte) _mm_crc32_u8((crc), (byte))
#elif defined(_MSC_VER) && defined(_M_X64)
#define HARDWARE 1
#define HARDWARE_FUNCTION
#include <intrin.h>
#include <nmmintrin.h>
#define CRC_WORD(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define CRC_BYTE(crc, byte) _mm_crc32_u8((crc), (byte))
#elif defined(__ARM_FEATURE_CRC32) && !PY_BIG_ENDIAN
#define HARDWARE 1
#define HARDWARE_FUNCTION
#include <arm_acle.h>
#define CRC_WORD(crc, word) __crc32cd((crc), (word))
#define CRC_BYTE(crc, byte) __crc32cb((crc), (byte))
#else
#define HARDWARE 0
#endif

/* The polynomial of CRC-32C (Castagnoli), its bits reversed. */
#define POLYNOMIAL UINT32_C(0x82f63b78)
/* Below this many bytes, letting go of the GIL costs more than it gives. */
#define WORTH_THREADS (64 * 1024)
/* Bytes of each of the three stretches that are taken side by side. */
#define STRETCH 1024

static uint32_t tables[8][256];
#if HARDWARE
/* Moves a sum over the zeros of one stretch, byte by byte of the sum. */
static uint32_t over_stretch[4][256];
#endif
static int has_instruction;

static inline uint64_t
load64(const unsigned char *p)
{
#if PY_BIG_ENDIAN
    uint64_t x = 0;
    int i;
    for (i = 7; i >= 0; i--) {
        x = x << 8 | p[i];
    }
    return x;
#else
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
#endif
}

/* ---- by tables -------------------------------------------------------------------------------------------------- */

static uint32_t
update_by_tables(uint32_t crc, const unsigned char *p, size_t size)
{
    for (; size >= 8; size -= 8, p += 8) {
        uint64_t word = load64(p) ^ crc;
        crc = tables[7][word & 0xff] ^ tables[6][word >> 8 & 0xff] ^ tables[5][word >> 16 & 0xff]
            ^ tables[4][word >> 24 & 0xff] ^ tables[3][word >> 32 & 0xff] ^ tables[2][word >> 40 & 0xff]
            ^ tables[1][word >> 48 & 0xff] ^ tables[0][word >> 56];
    }
    for (; size; size--) {
        crc = tables[0][(crc ^ *p++) & 0xff] ^ crc >> 8;
    }
    return crc;
}

/* ---- by the instruction ----------------------------------------------------------------------------------------- */

#if HARDWARE
static inline uint32_t
moved(uint32_t crc)
{
    return over_stretch[0][crc & 0xff] ^ over_stretch[1][crc >> 8 & 0xff] ^ over_stretch[2][crc >> 16 & 0xff]
        ^ over_stretch[3][crc >> 24];
}

HARDWARE_FUNCTION static uint32_t
update_by_instruction(uint32_t crc, const unsigned char *p, size_t size)
{
    for (; size >= 3 * STRETCH; size -= 3 * STRETCH, p += 3 * STRETCH) {
        uint32_t second = 0, third = 0;
        size_t i;
        for (i = 0; i < STRETCH; i += 8) {
            crc = CRC_WORD(crc, load64(p + i));
            second = CRC_WORD(second, load64(p + STRETCH + i));
            third = CRC_WORD(third, load64(p + 2 * STRETCH + i));
        }
        crc = moved(moved(crc) ^ second) ^ third;
    }
    for (; size >= 8; size -= 8, p += 8) {
        crc = CRC_WORD(crc, load64(p));
    }
    for (; size; size--) {
        crc = CRC_BYTE(crc, *p++);
    }
    return crc;
}

static int
find_instruction(void)
{
#if defined(__ARM_FEATURE_CRC32)
    return 1;
#elif defined(_MSC_VER)
    int found[4];
    __cpuid(found, 1);
    return found[2] >> 20 & 1;
#else
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
#endif
}
#endif

static void
make_tables(void)
{
    uint32_t i, k;
    for (i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (k = 0; k < 8; k++) {
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        }
        tables[0][i] = crc;
    }
    for (i = 0; i < 256; i++) {
        for (k = 1; k < 8; k++) {
            tables[k][i] = tables[0][tables[k - 1][i] & 0xff] ^ tables[k - 1][i] >> 8;
        }
    }
#if HARDWARE
    for (k = 0; k < 4; k++) {
        for (i = 0; i < 256; i++) {
            static const unsigned char zeros[STRETCH];
            over_stretch[k][i] = update_by_tables(i << 8 * k, zeros, STRETCH);
        }
    }
    has_instruction = find_instruction();
#endif
}

static uint32_t
update(uint32_t crc, const unsigned char *p, size_t size)
{
#if HARDWARE
    if (has_instruction) {
        return update_by_instruction(crc, p, size);
    }
#endif
    return update_by_tables(crc, p, size);
}

/* ---- the module ------------------------------------------------------------------------------------------------- */

static PyObject *
checksum(PyObject *arguments, int by_tables)
{
    PyObject *data;
    Py_buffer view;
    unsigned long before = 0;
    uint32_t crc;
    if (!PyArg_ParseTuple(arguments, "O|k:crc32c", &data, &before)) {
        return NULL;
    }
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    crc = ~(uint32_t)before;
    if (view.len >= WORTH_THREADS) {
        Py_BEGIN_ALLOW_THREADS
        crc = (by_tables ? update_by_tables : update)(crc, (const unsigned char *)view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    }
    else {
        crc = (by_tables ? update_by_tables : update)(crc, (const unsigned char *)view.buf, (size_t)view.len);
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong((uint32_t)~crc);
}

PyDoc_STRVAR(crc32c_doc,
"crc32c($module, data, crc=0, /)\n--\n\nReturn the CRC-32C of a buffer, continued from that of the bytes before it.");

static PyObject *
crc32c(PyObject *module, PyObject *arguments)
{
    (void)module;
    return checksum(arguments, 0);
}

PyDoc_STRVAR(by_tables_doc,
"by_tables($module, data, crc=0, /)\n--\n\nDo what crc32c does on a processor without an instruction for it.");

static PyObject *
by_tables(PyObject *module, PyObject *arguments)
{
    (void)module;
    return checksum(arguments, 1);
}

static PyMethodDef module_methods[] = {
    {"crc32c", crc32c, METH_VARARGS, crc32c_doc},
    {"by_tables", by_tables, METH_VARARGS, by_tables_doc},
    {NULL, NULL, 0, NULL},
};

static int
module_exec(PyObject *module)
{
    (void)module;
    make_tables();
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_crc32c", "CRC-32C, in C.", 0, module_methods,
    module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__crc32c(void)
{
#ifdef Py_LIMITED_API
    /* Built for later versions only: None has no references to count there, and would be freed here. */
    if (Py_Version < (Py_LIMITED_API & 0xFFFF0000u)) {
        PyErr_SetString(PyExc_ImportError, "built by a later version of Python");
        return NULL;
    }
#endif
    return PyModuleDef_Init(&module_definition);
}
