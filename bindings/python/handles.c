/* The type Handles of the extension module: which of a family's native handles is this thread's. It is there for
 * speed only: _handle.py keeps the handles in a threading.local, and takes them out of here with their thread. Nothing
 * but the look-up belongs here. Stable ABI only. */

#include <stdlib.h>
#include <string.h>

/** Threads that there is room for before the table is made; and at most, so that more take each other's places. */
enum { HANDLES_FEW = 4, HANDLES_MOST = 1024 };

typedef struct {
    /** 0: nobody's. */
    unsigned long thread;
    PyObject *cf;
} HandlesEntry;

typedef struct {
    PyObject_HEAD
    /** At a thread's number, as far as the mask goes. */
    HandlesEntry *entries;
    unsigned long mask;
    /** The interned "cf" of its interpreter: since CPython 3.12 each may have another, which ends with it. */
    PyObject *cf_name;
    HandlesEntry few[HANDLES_FEW];
} Handles;

/* The number of this thread. Unlike the system's it is never given again. */
static unsigned long handles_thread(void)
{
    static unsigned long last;
    static KVPY_EACH_THREAD unsigned long thread;
    if (thread == 0) thread = kvpy_next(&last);
    return thread;
}

/* cf: this thread's handle, or None. */
static PyObject *handles_getattro(PyObject *object, PyObject *name)
{
    Handles *self = (Handles *)object;
    unsigned long thread;
    HandlesEntry *entry;
    PyObject *found;
    /* By its address, as names in code are: to compare texts takes longer than all the rest. */
    if (name != self->cf_name && (!PyUnicode_Check(name) || PyUnicode_CompareWithASCIIString(name, "cf") != 0))
        return PyObject_GenericGetAttr(object, name);
    thread = handles_thread();
    entry = &self->entries[thread & self->mask];
    found = entry->thread == thread ? entry->cf : Py_None;
    Py_INCREF(found);
    return found;
}

/* Twice as many entries; each finds a place of its own again. */
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

/* keep(cf): this is the thread's from now on. Returns the thread's number. */
static PyObject *handles_keep(PyObject *object, PyObject *cf)
{
    unsigned long thread = handles_thread();
#ifndef Py_GIL_DISABLED /* else nobody would keep one thread from reading what another one changes */
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

/* drop(number): that thread has none any more; None is this one. */
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
