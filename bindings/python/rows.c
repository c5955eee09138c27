/* The type Rows of the extension module: the Python iterator over keys, values or pairs. It creates each row
 * on request, from the memory of the library's iterator. _iteration.py creates the objects and documents the
 * guarantees of an iteration. Code that runs once per iteration does not belong here. Stable ABI only. */

enum { ROWS_KEYS, ROWS_VALUES, ROWS_ITEMS };

typedef struct {
    PyObject_HEAD
    /** Owned; NULL before the first row and after the last one. */
    KVIterator *it;
    /** begin(address of `it`, key of the last row or None): creates `it`, positioned after that key, and returns a
     * function that gives the time; None: the library's clock. */
    PyObject *begin;
    /** fail(code): raises the exception of a failed call. */
    PyObject *fail;
    /** A list whose first element is replaced after each write. */
    PyObject *changes;
    /** The first element of `changes` before `it` was created. */
    PyObject *seen;
    /** The thread that created `it`, on its own connection: another thread creates a new one. */
    unsigned long thread;
    /** A list with one element for each running iteration. */
    PyObject *scans;
    PyObject *clock;
    /** The key of the last row before `entries`; NULL: none. */
    PyObject *after;
    int kind;
    /** The number of rows to read next. */
    int size;
    /** The length of `entries`. Those before `at` were returned, or had expired. They are in the memory of `it`. */
    int count;
    int at;
    /** A call is running: no other call may move `it`, not even from Python code called here. */
    int running;
    /** Whether it has an element in `scans`. */
    int counted;
    int ended;
    KVEntry entries[KVPY_CHUNK_ROWS];
} Rows;

static int rows_enter(Rows *self)
{
    int running;
#ifdef Py_GIL_DISABLED
    running = kvpy_exchange(&self->running, 1);
#else
    running = self->running;
    self->running = 1;
#endif
    if (running) PyErr_SetString(PyExc_ValueError, "iterator already executing");
    return !running;
}

static void rows_leave(Rows *self)
{
#ifdef Py_GIL_DISABLED
    (void)kvpy_exchange(&self->running, 0);
#else
    self->running = 0;
#endif
}

/* Releases the GIL: the library may wait for a thread that calls Python. */
static void rows_close(Rows *self)
{
    KVIterator *it = self->it;
    self->it = NULL;
    self->at = self->count = 0;
    if (it == NULL) return;
    Py_BEGIN_ALLOW_THREADS
    kvstore_iterator_close(it);
    Py_END_ALLOW_THREADS
}

/* Ends the iteration, and keeps the current exception. */
static void rows_end(Rows *self)
{
    PyObject *type, *value, *traceback;
    self->ended = 1;
    rows_close(self);
    if (!self->counted) return;
    self->counted = 0;
    PyErr_Fetch(&type, &value, &traceback);
    Py_XDECREF(PyObject_CallMethod(self->scans, "pop", NULL));
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

/* Returns a new reference to the first element of `changes`; NULL: an exception. */
static PyObject *rows_change(const Rows *self)
{
#ifdef Py_GIL_DISABLED /* another thread may replace it before the reference is taken; no stable ABI here */
    return PyList_GetItemRef(self->changes, 0);
#else
    PyObject *change = PyList_GetItem(self->changes, 0);
    Py_XINCREF(change);
    return change;
#endif
}

/* 1: no write since `it` was created. (A borrowed reference suffices: while `seen` exists, no other object
 * has its address.) */
static int rows_unwritten(const Rows *self)
{
    return self->seen != NULL && PyList_GetItem(self->changes, 0) == self->seen;
}

/* 1: no write since `it` was created, and this is the thread that created it. */
static int rows_unchanged(const Rows *self)
{
    return rows_unwritten(self) && PyThread_get_thread_ident() == self->thread;
}

/* Saves the key of the last row before the entries are discarded. */
static int rows_note_last(Rows *self)
{
    const KVEntry *last;
    PyObject *key, *before = self->after;
    if (self->at == 0) return 0;
    last = &self->entries[self->at - 1];
    key = PyBytes_FromStringAndSize(last->pKey, last->nKey);
    if (key == NULL) return -1;
    self->after = key;
    Py_XDECREF(before);
    return 0;
}

/* Creates the library's iterator, after the last row. */
static int rows_begin(Rows *self)
{
    PyObject *seen, *address, *clock, *before;
    if (rows_note_last(self) < 0) return -1;
    rows_close(self);
    if (!self->counted) { /* before the first read: from now on writes signal a change */
        if (PyList_Append(self->scans, Py_None) < 0) return -1;
        self->counted = 1;
    }
    seen = rows_change(self); /* before the read: later writes are noticed */
    if (seen == NULL) return -1;
    before = self->seen;
    self->seen = seen;
    self->thread = PyThread_get_thread_ident();
    Py_XDECREF(before);
    address = PyLong_FromVoidPtr(&self->it);
    if (address == NULL) return -1;
    clock = PyObject_CallFunctionObjArgs(self->begin, address, self->after ? self->after : Py_None, NULL);
    Py_DECREF(address);
    if (clock == NULL) return -1;
    before = self->clock;
    self->clock = clock;
    Py_XDECREF(before);
    return 0;
}

/* Reads the next entries. 0: none are left; -1: an exception. */
static int rows_read(Rows *self)
{
    int size = self->size, count = 0, rc;
    PyObject *failed;
    if (PyErr_CheckSignals() < 0) return -1; /* otherwise Ctrl-C could not stop a list() of many rows */
    if (!rows_unchanged(self)) return 1;
    if (rows_note_last(self) < 0) return -1;
    self->at = self->count = 0;
    Py_BEGIN_ALLOW_THREADS
    rc = kvstore_iterator_fetch(self->it, self->entries, size, &count);
    Py_END_ALLOW_THREADS
    if (rc == KVSTORE_OK) {
        self->count = count;
        self->size = size < KVPY_CHUNK_ROWS / 2 ? size * 2 : KVPY_CHUNK_ROWS;
        return count > 0 || !rows_unchanged(self);
    }
    if (!rows_unchanged(self)) return 1; /* the next iterator reports the failure, if it persists */
    failed = PyObject_CallFunction(self->fail, "i", rc);
    if (failed != NULL) PyErr_SetString(PyExc_SystemError, "the failure callback returned without an exception");
    Py_XDECREF(failed);
    return -1;
}

/* Returns whether an entry with a TTL is live now; -1: an exception. */
static int rows_is_live(const Rows *self, const KVEntry *entry)
{
    PyObject *now;
    long long now_ms;
    if (self->clock == Py_None) return entry->expireMs > kvstore_now_ms();
    now = PyObject_CallObject(self->clock, NULL);
    if (now == NULL) return -1;
    now_ms = PyLong_AsLongLong(now);
    Py_DECREF(now);
    if (now_ms == -1 && PyErr_Occurred()) return -1;
    return entry->expireMs > now_ms;
}

static PyObject *rows_row(const Rows *self, const KVEntry *entry)
{
    PyObject *key, *value, *pair;
    if (self->kind == ROWS_VALUES) return PyBytes_FromStringAndSize(entry->pValue, entry->nValue);
    key = PyBytes_FromStringAndSize(entry->pKey, entry->nKey);
    if (self->kind == ROWS_KEYS || key == NULL) return key;
    value = PyBytes_FromStringAndSize(entry->pValue, entry->nValue);
    pair = value ? PyTuple_New(2) : NULL;
    if (pair == NULL) {
        Py_DECREF(key);
        Py_XDECREF(value);
        return NULL;
    }
    PyTuple_SetItem(pair, 0, key);
    PyTuple_SetItem(pair, 1, value);
    return pair;
}

/* Returns the next row; NULL: the end, or an exception. */
static PyObject *rows_step(Rows *self)
{
    int more = 1;
    while (more > 0) {
        if (!rows_unchanged(self)) {
            /* A program that wrote between two rows is likely to do so again. */
            if (self->seen != NULL && !rows_unwritten(self)) self->size = 1;
            more = rows_begin(self) < 0 ? -1 : 1;
        } else if (self->at == self->count) {
            more = rows_read(self);
        } else {
            const KVEntry *entry = &self->entries[self->at];
            int live = entry->expireMs == KVSTORE_NO_TTL ? 1 : rows_is_live(self, entry);
            if (live < 0) return NULL;
            self->at++;
            if (live) return rows_row(self, entry);
        }
    }
    return NULL;
}

static PyObject *rows_next(PyObject *object)
{
    Rows *self = (Rows *)object;
    PyObject *row = NULL;
    if (!rows_enter(self)) return NULL;
    if (!self->ended) {
        row = rows_step(self);
        if (row == NULL) rows_end(self);
    }
    rows_leave(self);
    return row;
}

static PyObject *rows_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *begin, *fail, *changes, *scans;
    int kind, size;
    Rows *self;
    if (names != NULL && PyDict_Size(names) != 0) {
        PyErr_SetString(PyExc_TypeError, "Rows takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOO!O!ii:Rows", &begin, &fail, &PyList_Type, &changes, &PyList_Type, &scans, &kind, &size))
        return NULL;
    self = (Rows *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    Py_INCREF(begin);
    self->begin = begin;
    Py_INCREF(fail);
    self->fail = fail;
    Py_INCREF(changes);
    self->changes = changes;
    Py_INCREF(scans);
    self->scans = scans;
    self->kind = kind;
    self->size = size < 1 ? 1 : size > KVPY_CHUNK_ROWS ? KVPY_CHUNK_ROWS : size;
    return (PyObject *)self;
}

static int rows_traverse(PyObject *object, visitproc visit, void *arg)
{
    Rows *self = (Rows *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->begin);
    Py_VISIT(self->fail);
    Py_VISIT(self->changes);
    Py_VISIT(self->seen);
    Py_VISIT(self->scans);
    Py_VISIT(self->clock);
    return 0;
}

static int rows_clear(PyObject *object)
{
    Rows *self = (Rows *)object;
    rows_end(self);
    Py_CLEAR(self->begin);
    Py_CLEAR(self->fail);
    Py_CLEAR(self->clock);
    return 0;
}

static void rows_dealloc(PyObject *object)
{
    Rows *self = (Rows *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    rows_clear(object);
    Py_CLEAR(self->changes);
    Py_CLEAR(self->seen);
    Py_CLEAR(self->scans);
    Py_CLEAR(self->after);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyType_Slot rows_slots[] = {
    {Py_tp_new, rows_new},
    {Py_tp_dealloc, rows_dealloc},
    {Py_tp_traverse, rows_traverse},
    {Py_tp_clear, rows_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, rows_next},
    {0, NULL},
};

static PyType_Spec rows_spec = {"kvstore._kvstore.Rows", sizeof(Rows), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, rows_slots};
