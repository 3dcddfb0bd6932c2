/* HighwayHash-64 with the key of the Riegeli/records format, for CPython: the fast twin of highway.py, which tells the
 * algorithm. Module pparse.kernels._highway: hash64(buffer) and the type Highway64 (update, digest, copy).
 *
 * C99 and the stable ABI of CPython, from 3.11 (setup.py defines Py_LIMITED_API), so that a build serves later versions too;
 * interpreters without the GIL have no stable ABI and get a build of their own. Nothing here depends on the byte order of
 * the machine but load64, which minds it.
 *
 * Threads: a Highway64 has a lock, held while its state is used, so that it can be updated from several threads, without
 * the GIL too. Who waits for the lock has let go of the GIL, which the holder may need to finish.
 */

#include <Python.h>
#include <pythread.h>

#include <stdint.h>
#include <string.h>

#define PACKET 32
/* Below this many bytes, letting go of the GIL costs more than it gives (some 30 microseconds of work). */
#define WORTH_THREADS (64 * 1024)

#define LOW32(x) ((x) & UINT64_C(0xffffffff))

/* ---- the hash --------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t v0[4], v1[4], mul0[4], mul1[4];
} State;

static const uint64_t KEY[2] = {UINT64_C(0x2f696c6567656952), UINT64_C(0x0a7364726f636572)};
static const uint64_t MUL0[4] = {UINT64_C(0xdbe6d5d5fe4cce2f), UINT64_C(0xa4093822299f31d0),
                                 UINT64_C(0x13198a2e03707344), UINT64_C(0x243f6a8885a308d3)};
static const uint64_t MUL1[4] = {UINT64_C(0x3bd39e10cb0ef593), UINT64_C(0xc0acf169b5f18a8c),
                                 UINT64_C(0xbe5466cf34e90c6c), UINT64_C(0x452821e638d01377)};

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

static inline uint64_t
swap_halves(uint64_t x)
{
    return x >> 32 | x << 32;
}

/* The bytes of a pair of lanes, b0..b7 of low and b8..b15 of high: low becomes b3 b12 b2 b5 b14 b1 b15 b0. */
static inline uint64_t
zip_low(uint64_t low, uint64_t high)
{
    return ((low & UINT64_C(0xff000000)) | (high & UINT64_C(0xff00000000))) >> 24 |
           ((low & UINT64_C(0xff0000000000)) | (high & UINT64_C(0xff000000000000))) >> 16 |
           (low & UINT64_C(0xff0000)) | (low & UINT64_C(0xff00)) << 32 |
           (high & UINT64_C(0xff00000000000000)) >> 8 | low << 56;
}

/* And high becomes b11 b4 b10 b13 b9 b6 b8 b7. */
static inline uint64_t
zip_high(uint64_t low, uint64_t high)
{
    return ((high & UINT64_C(0xff000000)) | (low & UINT64_C(0xff00000000))) >> 24 |
           (high & UINT64_C(0xff0000)) | (high & UINT64_C(0xff0000000000)) >> 16 |
           (high & UINT64_C(0xff00)) << 24 | (low & UINT64_C(0xff000000000000)) >> 8 |
           (high & UINT64_C(0xff)) << 48 | (low & UINT64_C(0xff00000000000000));
}

/* dst += zip(src), four lanes each. */
static inline void
add_zipped(uint64_t *dst, const uint64_t *src)
{
    dst[0] += zip_low(src[0], src[1]);
    dst[1] += zip_high(src[0], src[1]);
    dst[2] += zip_low(src[2], src[3]);
    dst[3] += zip_high(src[2], src[3]);
}

static inline void
one_round(State *s, uint64_t lane0, uint64_t lane1, uint64_t lane2, uint64_t lane3)
{
    const uint64_t lanes[4] = {lane0, lane1, lane2, lane3};
    int i;
    for (i = 0; i < 4; i++) {
        s->v1[i] += s->mul0[i] + lanes[i];
        s->mul0[i] ^= LOW32(s->v1[i]) * (s->v0[i] >> 32);
        s->v0[i] += s->mul1[i];
        s->mul1[i] ^= LOW32(s->v0[i]) * (s->v1[i] >> 32);
    }
    add_zipped(s->v0, s->v1);
    add_zipped(s->v1, s->v0);
}

static void
start(State *s)
{
    int i;
    for (i = 0; i < 4; i++) {
        s->mul0[i] = MUL0[i];
        s->mul1[i] = MUL1[i];
        s->v0[i] = MUL0[i] ^ KEY[i & 1];
        s->v1[i] = MUL1[i] ^ swap_halves(KEY[i & 1]);
    }
}

static void
absorb(State *state, const unsigned char *p, size_t packets)
{
    State s = *state; /* a copy that the compiler knows nobody else to see */
    for (; packets > 0; packets--, p += PACKET) {
        one_round(&s, load64(p), load64(p + 8), load64(p + 16), load64(p + 24));
    }
    *state = s;
}

/* Mix in the last 1 to 31 bytes. */
static void
absorb_rest(State *s, const unsigned char *rest, unsigned count)
{
    unsigned char packet[PACKET] = {0};
    const unsigned words = count & ~3u, odd = count & 3;
    int i;
    for (i = 0; i < 4; i++) {
        const uint32_t low = (uint32_t)LOW32(s->v1[i]), high = (uint32_t)(s->v1[i] >> 32);
        s->v0[i] += ((uint64_t)count << 32) + count;
        s->v1[i] = (uint64_t)(uint32_t)(high << count | high >> (32 - count)) << 32 |
                   (uint32_t)(low << count | low >> (32 - count));
    }
    memcpy(packet, rest, words);
    if (count >= 16) {
        memcpy(packet + 28, rest + count - 4, 4);
    }
    else if (odd) {
        packet[16] = rest[words];
        packet[17] = rest[words + (odd >> 1)];
        packet[18] = rest[count - 1];
    }
    absorb(s, packet, 1);
}

static uint64_t
finish(State *s)
{
    int i;
    for (i = 0; i < 4; i++) {
        one_round(s, swap_halves(s->v0[2]), swap_halves(s->v0[3]), swap_halves(s->v0[0]), swap_halves(s->v0[1]));
    }
    return s->v0[0] + s->v1[0] + s->mul0[0] + s->mul1[0];
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

PyDoc_STRVAR(hash64_doc, "hash64($module, data, /)\n--\n\n"
                         "Return the HighwayHash-64 of the bytes of a buffer.\n\n"
                         "Raises TypeError for what is no buffer, BufferError for one that is not C-contiguous.");

static uint64_t
hash_all(const unsigned char *p, size_t size)
{
    State s;
    const size_t whole = size - size % PACKET;
    start(&s);
    absorb(&s, p, whole / PACKET);
    if (size > whole) {
        absorb_rest(&s, p + whole, (unsigned)(size - whole));
    }
    return finish(&s);
}

static PyObject *
hash64(PyObject *module, PyObject *data)
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

typedef struct {
    PyObject_HEAD
    PyThread_type_lock lock;
    State state;
    unsigned char rest[PACKET]; /* what does not fill a packet yet */
    unsigned held;              /* how many bytes that is, 0 to 31 */
} Highway64;

static void
acquire(Highway64 *self)
{
    if (!PyThread_acquire_lock(self->lock, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(self->lock, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
}

static PyObject *
make(PyTypeObject *type)
{
    Highway64 *self = (Highway64 *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    start(&self->state);
    self->held = 0;
    return (PyObject *)self;
}

static PyObject *
Highway64_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, named, ":Highway64", names)) {
        return NULL;
    }
    return make(type);
}

static void
Highway64_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Highway64 *self = (Highway64 *)object;
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    if (self->lock != NULL) {
        PyThread_free_lock(self->lock);
    }
    release(object);
    Py_DECREF(type); /* instances of a heap type own a reference to it */
}

static void
take_in(Highway64 *self, const unsigned char *p, size_t size)
{
    if (self->held > 0) {
        size_t missing = PACKET - self->held;
        if (missing > size) {
            missing = size;
        }
        memcpy(self->rest + self->held, p, missing);
        self->held += (unsigned)missing;
        p += missing;
        size -= missing;
        if (self->held < PACKET) {
            return;
        }
        absorb(&self->state, self->rest, 1);
    }
    absorb(&self->state, p, size / PACKET);
    self->held = (unsigned)(size % PACKET);
    memcpy(self->rest, p + (size - self->held), self->held);
}

PyDoc_STRVAR(update_doc, "update($self, data, /)\n--\n\n"
                         "Take in more bytes.\n\n"
                         "Raises TypeError for what is no buffer, BufferError for one that is not C-contiguous.");

static PyObject *
Highway64_update(PyObject *object, PyObject *data)
{
    Highway64 *self = (Highway64 *)object;
    Py_buffer view;
    if (get_bytes(data, &view) < 0) {
        return NULL;
    }
    if (view.len > 0) { /* an empty buffer may have no address */
        acquire(self);
        if (view.len >= WORTH_THREADS) {
            Py_BEGIN_ALLOW_THREADS
            take_in(self, (const unsigned char *)view.buf, (size_t)view.len);
            Py_END_ALLOW_THREADS
        }
        else {
            take_in(self, (const unsigned char *)view.buf, (size_t)view.len);
        }
        PyThread_release_lock(self->lock);
    }
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(digest_doc, "digest($self, /)\n--\n\n"
                         "Return the hash of all bytes up to now; more may follow.");

static PyObject *
Highway64_digest(PyObject *object, PyObject *unused)
{
    Highway64 *self = (Highway64 *)object;
    State s;
    (void)unused;
    acquire(self);
    s = self->state;
    if (self->held > 0) {
        absorb_rest(&s, self->rest, self->held);
    }
    PyThread_release_lock(self->lock);
    return PyLong_FromUnsignedLongLong(finish(&s));
}

PyDoc_STRVAR(copy_doc, "copy($self, /)\n--\n\n"
                       "Return another that goes on from here by itself.");

static PyObject *
Highway64_copy(PyObject *object, PyObject *unused)
{
    Highway64 *self = (Highway64 *)object;
    Highway64 *other = (Highway64 *)make(Py_TYPE(object));
    (void)unused;
    if (other == NULL) {
        return NULL;
    }
    acquire(self);
    other->state = self->state;
    other->held = self->held;
    memcpy(other->rest, self->rest, PACKET);
    PyThread_release_lock(self->lock);
    return (PyObject *)other;
}

static PyMethodDef Highway64_methods[] = {
    {"update", Highway64_update, METH_O, update_doc},
    {"digest", Highway64_digest, METH_NOARGS, digest_doc},
    {"copy", Highway64_copy, METH_NOARGS, copy_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(Highway64_doc, "Highway64()\n--\n\n"
                            "HighwayHash-64 of what comes piece by piece; however it is cut, the digest is the same.\n\n"
                            "Methods may be called from several threads: one waits for the other.");

static PyType_Slot Highway64_slots[] = {
    {Py_tp_doc, (void *)Highway64_doc},
    {Py_tp_new, (void *)Highway64_new},
    {Py_tp_dealloc, (void *)Highway64_dealloc},
    {Py_tp_methods, Highway64_methods},
    {0, NULL},
};

static PyType_Spec Highway64_spec = {
    "pparse.kernels._highway.Highway64", sizeof(Highway64), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    Highway64_slots,
};

static PyMethodDef module_methods[] = {
    {"hash64", hash64, METH_O, hash64_doc},
    {NULL, NULL, 0, NULL},
};

static int
fill(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &Highway64_spec, NULL);
    int failed;
    if (type == NULL) {
        return -1;
    }
    failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)fill},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_highway", "HighwayHash-64 with the key of Riegeli/records, in C.", 0, module_methods,
    module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__highway(void)
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
