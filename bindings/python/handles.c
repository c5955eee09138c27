/* The type Handles of the extension module: looks up the native handle of a family that belongs to the
 * calling thread. It is a cache for speed: _family_handle.py keeps the handles in a threading.local, and removes
 * them from here when their thread ends. Stable ABI only. */

#include <stdlib.h>
#include <string.h>

/** The number of entries before a table is allocated, and the maximum, beyond which threads replace each
 * other's entries. */
enum { HANDLES_FEW = 4, HANDLES_MOST = 1024 };

typedef struct {
    /** 0: the entry is empty. */
    unsigned long thread;
    PyObject *cf;
} HandlesEntry;

typedef struct {
    PyObject_HEAD
    /** Indexed by the thread's number & mask. */
    HandlesEntry *entries;
    unsigned long mask;
    /** The interned "cf" of its interpreter. Since CPython 3.12 each interpreter has its own, which ends with it. */
    PyObject *cf_name;
    HandlesEntry few[HANDLES_FEW];
} Handles;

/* Returns the number of this thread. Unlike the system's thread ids, numbers are never reused. */
static unsigned long handles_thread(void)
{
    static unsigned long last;
    static KVPY_EACH_THREAD unsigned long thread;
    if (thread == 0) thread = kvpy_next(&last);
    return thread;
}

/* Attribute cf: this thread's handle, or None. */
static PyObject *handles_getattro(PyObject *object, PyObject *name)
{
    Handles *self = (Handles *)object;
    unsigned long thread;
    HandlesEntry *entry;
    PyObject *found;
    /* Compares addresses first, because names in code are interned: comparing text costs more than the rest. */
    if (name != self->cf_name && (!PyUnicode_Check(name) || PyUnicode_CompareWithASCIIString(name, "cf") != 0))
        return PyObject_GenericGetAttr(object, name);
    thread = handles_thread();
    entry = &self->entries[thread & self->mask];
    found = entry->thread == thread ? entry->cf : Py_None;
    Py_INCREF(found);
    return found;
}

/* Doubles the number of entries. Each entry still gets a slot of its own. */
static int handles_grow(Handles *self)
{
    unsigned long size = 2 * (self->mask + 1), i;
    HandlesEntry *entries = calloc(size, sizeof *entries);
    if (entries == NULL) return -1;
    for (i = 0; i <= self->mask; i++) {
        const HandlesEntry *entry = &self->entries[i];
        if (entry->thread != 0) entries[entry->thread & (size - 1)] = *entry;
    }
    if (self->entries != self->few) free(self->entries);
    self->entries = entries;
    self->mask = size - 1;
    return 0;
}

/* keep(cf): stores this thread's handle. Returns the thread's number. */
static PyObject *handles_keep(PyObject *object, PyObject *cf)
{
    unsigned long thread = handles_thread();
#ifndef Py_GIL_DISABLED /* without the GIL, one thread could read an entry while another changes it */
    Handles *self = (Handles *)object;
    HandlesEntry *entry = &self->entries[thread & self->mask];
    PyObject *before;
    while (entry->thread != 0 && entry->thread != thread && self->mask + 1 < HANDLES_MOST) {
        if (handles_grow(self) < 0) return PyErr_NoMemory();
        entry = &self->entries[thread & self->mask];
    }
    before = entry->cf;
    Py_INCREF(cf);
    entry->cf = cf;
    entry->thread = thread;
    Py_XDECREF(before);
#endif
    return PyLong_FromUnsignedLong(thread);
}

/* drop(number): removes the handle of that thread; None: of this thread. */
static PyObject *handles_drop(PyObject *object, PyObject *number)
{
    Handles *self = (Handles *)object;
    unsigned long thread = number == Py_None ? handles_thread() : PyLong_AsUnsignedLong(number);
    HandlesEntry *entry;
    if (thread == (unsigned long)-1 && PyErr_Occurred()) return NULL;
    entry = &self->entries[thread & self->mask];
    if (thread != 0 && entry->thread == thread) {
        PyObject *cf = entry->cf;
        entry->thread = 0;
        entry->cf = NULL;
        Py_DECREF(cf);
    }
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *handles_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    Handles *self;
    if (PyTuple_Size(args) != 0 || (names != NULL && PyDict_Size(names) != 0)) {
        PyErr_SetString(PyExc_TypeError, "Handles takes no arguments");
        return NULL;
    }
    self = (Handles *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    self->entries = self->few;
    self->mask = HANDLES_FEW - 1;
    self->cf_name = PyUnicode_InternFromString("cf");
    if (self->cf_name == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void handles_dealloc(PyObject *object)
{
    Handles *self = (Handles *)object;
    PyTypeObject *type = Py_TYPE(object);
    unsigned long i;
    for (i = 0; i <= self->mask; i++) Py_CLEAR(self->entries[i].cf);
    if (self->entries != self->few) free(self->entries);
    Py_CLEAR(self->cf_name);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyMethodDef handles_methods[] = {
    {"keep", handles_keep, METH_O, NULL},
    {"drop", handles_drop, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot handles_slots[] = {
    {Py_tp_new, handles_new},
    {Py_tp_dealloc, handles_dealloc},
    {Py_tp_getattro, handles_getattro},
    {Py_tp_methods, handles_methods},
    {0, NULL},
};

static PyType_Spec handles_spec = {"kvstore._kvstore.Handles", sizeof(Handles), 0, Py_TPFLAGS_DEFAULT, handles_slots};
