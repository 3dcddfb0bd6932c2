/* FarmHash Fingerprint64 for CPython: the fast twin of farmhash.py, which tells the algorithm. Module
 * pparse.kernels._farmhash: fingerprint64(buffer) and absorb(state, buffer), of which the streaming form is made.
 *
 * C99 and the stable ABI of CPython, from 3.11 (setup.py defines Py_LIMITED_API), so that a build serves later versions too;
 * interpreters without the GIL have no stable ABI and get a build of their own. Nothing here depends on the byte order of
 * the machine but load64 and store64, which mind it.
 */

#include <Python.h>

#include <stdint.h>
#include <string.h>

#define BLOCK 64
#define WORDS 7
/* Below this many bytes, letting go of the GIL costs more than it gives (some 15 microseconds of work). */
#define WORTH_THREADS (256 * 1024)

#define K0 UINT64_C(0xc3a5c85c97cb3127)
#define K1 UINT64_C(0xb492b66fbe98f273)
#define K2 UINT64_C(0x9ae16a3b2f90404f)
#define SEED UINT64_C(81)

/* ---- the hash --------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t x, y, z, v0, v1, w0, w1;
} State;

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

static inline void
store64(unsigned char *p, uint64_t x)
{
    int i;
    for (i = 0; i < 8; i++, x >>= 8) {
        p[i] = (unsigned char)x;
    }
}

static inline uint64_t
load32(const unsigned char *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
}

/* count: 1 to 63 */
static inline uint64_t
rotated(uint64_t x, int count)
{
    return x >> count | x << (64 - count);
}

static inline uint64_t
shift_mix(uint64_t x)
{
    return x ^ x >> 47;
}

static inline uint64_t
mix(uint64_t u, uint64_t v, uint64_t multiplier)
{
    const uint64_t a = shift_mix((u ^ v) * multiplier);
    return shift_mix((v ^ a) * multiplier) * multiplier;
}

static uint64_t
hash_to_16(const unsigned char *p, size_t size)
{
    const uint64_t multiplier = K2 + size * 2;
    if (size >= 8) {
        const uint64_t a = load64(p) + K2, b = load64(p + size - 8);
        return mix(rotated(b, 37) * multiplier + a, (rotated(a, 25) + b) * multiplier, multiplier);
    }
    if (size >= 4) {
        return mix(size + (load32(p) << 3), load32(p + size - 4), multiplier);
    }
    if (size > 0) {
        const uint64_t y = (uint64_t)p[0] + ((uint64_t)p[size >> 1] << 8), z = size + ((uint64_t)p[size - 1] << 2);
        return shift_mix(y * K2 ^ z * K0) * K2;
    }
    return K2;
}

/* 17 to 64 bytes */
static uint64_t
hash_to_64(const unsigned char *p, size_t size)
{
    const uint64_t multiplier = K2 + size * 2;
    const uint64_t a = load64(p) * (size <= 32 ? K1 : K2), b = load64(p + 8);
    const uint64_t c = load64(p + size - 8) * multiplier, d = load64(p + size - 16) * K2;
    const uint64_t y = rotated(a + b, 43) + rotated(c, 30) + d;
    const uint64_t z = mix(y, a + rotated(b + K2, 18) + c, multiplier);
    if (size <= 32) {
        return z;
    }
    else {
        const uint64_t e = load64(p + 16) * multiplier, f = load64(p + 24);
        const uint64_t g = (y + load64(p + size - 32)) * multiplier, h = (z + load64(p + size - 24)) * multiplier;
        return mix(rotated(e + f, 43) + rotated(g, 30) + h, e + rotated(f + a, 18) + g, multiplier);
    }
}

/* Make two seeds from 32 bytes and two seeds. */
static inline void
pair(const unsigned char *p, uint64_t a, uint64_t b, uint64_t *first, uint64_t *second)
{
    const uint64_t d = load64(p + 24);
    uint64_t c;
    a += load64(p);
    b = rotated(b + a + d, 21);
    c = a;
    a += load64(p + 8) + load64(p + 16);
    *first = a + d;
    *second = b + rotated(a, 44) + c;
}

static void
absorb_blocks(State *state, const unsigned char *p, size_t blocks)
{
    State s = *state; /* a copy that the compiler knows nobody else to see */
    for (; blocks > 0; blocks--, p += BLOCK) {
        uint64_t x = rotated(s.x + s.y + s.v0 + load64(p + 8), 37) * K1 ^ s.w1;
        uint64_t z = rotated(s.z + s.w0, 33) * K1;
        s.y = rotated(s.y + s.v1 + load64(p + 48), 42) * K1 + s.v0 + load64(p + 40);
        pair(p, s.v1 * K1, x + s.w0, &s.v0, &s.v1);
        pair(p + 32, z + s.w1, s.y + load64(p + 16), &s.w0, &s.w1);
        s.x = z;
        s.z = x;
    }
    *state = s;
}

/* last: the last 64 bytes, of which `held`, 1 to 64, were not absorbed yet */
static uint64_t
finish(State s, const unsigned char *last, size_t held)
{
    const uint64_t multiplier = K1 + ((s.z & 0xff) << 1);
    uint64_t x, y, z;
    s.w0 += held - 1;
    s.v0 += s.w0;
    s.w0 += s.v0;
    x = rotated(s.x + s.y + s.v0 + load64(last + 8), 37) * multiplier ^ s.w1 * 9;
    y = rotated(s.y + s.v1 + load64(last + 48), 42) * multiplier + s.v0 * 9 + load64(last + 40);
    z = rotated(s.z + s.w0, 33) * multiplier;
    pair(last, s.v1 * multiplier, x + s.w0, &s.v0, &s.v1);
    pair(last + 32, z + s.w1, y + load64(last + 16), &s.w0, &s.w1);
    return mix(mix(s.v0, s.w0, multiplier) + shift_mix(y) * K0 + x, mix(s.v1, s.w1, multiplier) + z, multiplier);
}

static uint64_t
hash_all(const unsigned char *p, size_t size)
{
    State s = {0};
    size_t blocks;
    if (size <= BLOCK) {
        return size <= 16 ? hash_to_16(p, size) : hash_to_64(p, size);
    }
    blocks = (size - 1) / BLOCK;
    s.y = SEED * K1 + 113;
    s.z = shift_mix(s.y * K2 + 113) * K2;
    s.x = SEED * K2 + load64(p);
    absorb_blocks(&s, p, blocks);
    return finish(s, p + size - BLOCK, size - blocks * BLOCK);
}

/* ---- for Python ------------------------------------------------------------------------------------------------- */

/* Get the bytes of an object, or set TypeError or BufferError. */
static int
get_bytes(PyObject *object, Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_FULL_RO) < 0) {
        return -1;
    }
    if (!PyBuffer_IsContiguous(view, 'C')) {
        PyBuffer_Release(view);
        PyErr_SetString(PyExc_BufferError, "the buffer is not C-contiguous");
        return -1;
    }
    return 0;
}

PyDoc_STRVAR(fingerprint64_doc, "fingerprint64($module, data, /)\n--\n\n"
                                "Return the Fingerprint64 of the bytes of a buffer.\n\n"
                                "Raises TypeError for what is no buffer, BufferError for one that is not C-contiguous.");

static PyObject *
fingerprint64(PyObject *module, PyObject *data)
{
    Py_buffer view;
    uint64_t hash;
    (void)module;
    if (get_bytes(data, &view) < 0) {
        return NULL;
    }
    if (view.len >= WORTH_THREADS) {
        Py_BEGIN_ALLOW_THREADS
        hash = hash_all((const unsigned char *)view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    }
    else {
        hash = hash_all((const unsigned char *)view.buf, (size_t)view.len);
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(hash);
}

PyDoc_STRVAR(absorb_doc, "absorb($module, state, data, /)\n--\n\n"
                         "Return the state, 56 bytes, after the blocks of data, whose size is a multiple of 64.");

static PyObject *
absorb(PyObject *module, PyObject *arguments)
{
    unsigned char packed[WORDS * 8];
    PyObject *given, *data;
    Py_buffer view;
    State s;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OO:absorb", &given, &data) || get_bytes(given, &view) < 0) {
        return NULL;
    }
    if (view.len != sizeof packed) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "a state has 56 bytes");
        return NULL;
    }
    memcpy(packed, view.buf, sizeof packed);
    PyBuffer_Release(&view);
    if (get_bytes(data, &view) < 0) {
        return NULL;
    }
    if (view.len % BLOCK != 0) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "the data are no whole blocks of 64 bytes");
        return NULL;
    }
    s.x = load64(packed);
    s.y = load64(packed + 8);
    s.z = load64(packed + 16);
    s.v0 = load64(packed + 24);
    s.v1 = load64(packed + 32);
    s.w0 = load64(packed + 40);
    s.w1 = load64(packed + 48);
    if (view.len >= WORTH_THREADS) {
        Py_BEGIN_ALLOW_THREADS
        absorb_blocks(&s, (const unsigned char *)view.buf, (size_t)view.len / BLOCK);
        Py_END_ALLOW_THREADS
    }
    else {
        absorb_blocks(&s, (const unsigned char *)view.buf, (size_t)view.len / BLOCK);
    }
    PyBuffer_Release(&view);
    store64(packed, s.x);
    store64(packed + 8, s.y);
    store64(packed + 16, s.z);
    store64(packed + 24, s.v0);
    store64(packed + 32, s.v1);
    store64(packed + 40, s.w0);
    store64(packed + 48, s.w1);
    return PyBytes_FromStringAndSize((const char *)packed, sizeof packed);
}

static PyMethodDef module_methods[] = {
    {"fingerprint64", fingerprint64, METH_O, fingerprint64_doc},
    {"absorb", absorb, METH_VARARGS, absorb_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_farmhash", "FarmHash Fingerprint64, in C.", 0, module_methods,
    module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__farmhash(void)
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
