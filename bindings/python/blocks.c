/* Ends of with blocks that an interrupt (Ctrl-C) cannot keep from being reached. Python runs signal handlers at the
 * first step of a Python function, after calls and in loops: never between the end of a block and the first step of an
 * __exit__ that is C. So __exit__ is here, and what it calls is in the classes' Python. (In Python 3.9 an interrupt can
 * also come before __exit__ is called at all, in 3.10 a second one can.) What a block ends does not belong here. Stable
 * ABI only. */

/** A call is made again so often if something interrupts it. */
enum { BLOCKS_TRIES = 100 };

/* Calls until an exception does not keep it from its end. NULL: each time one did; the last one is set. */
static PyObject *blocks_call(PyObject *function, PyObject *args)
{
    PyObject *result = NULL;
    int tries;
    for (tries = 0; result == NULL && tries < BLOCKS_TRIES; tries++) {
        PyErr_Clear();
        result = PyObject_CallObject(function, args);
    }
    return result;
}

/* surely(function, *args): calls it, and again if an interrupt comes out of it. For functions that then go on where
 * they were. */
static PyObject *blocks_surely(PyObject *module, PyObject *args)
{
    PyObject *rest, *result;
    (void)module;
    if (PyTuple_Size(args) < 1) {
        PyErr_SetString(PyExc_TypeError, "surely takes a function");
        return NULL;
    }
    rest = PyTuple_GetSlice(args, 1, PyTuple_Size(args));
    if (rest == NULL) return NULL;
    result = blocks_call(PyTuple_GetItem(args, 0), rest);
    Py_DECREF(rest);
    return result;
}

/* The same for a method, while an exception is set, which stays. */
static PyObject *blocks_surely_method(PyObject *self, const char *name, PyObject *args)
{
    PyObject *type, *value, *traceback, *method, *result = NULL;
    PyErr_Fetch(&type, &value, &traceback);
    method = PyObject_GetAttrString(self, name);
    if (method != NULL) result = blocks_call(method, args);
    Py_XDECREF(method);
    PyErr_Restore(type, value, traceback);
    return result;
}

/* __exit__(kind, error, traceback): self._leave(ending, kind, error, traceback), where ending is what self._ending()
 * says is to be ended. If an exception comes out of either, self._abandon(ending) ends what is left. */
static PyObject *blocks_exit(PyObject *self, PyObject *args)
{
    PyObject *kind, *error, *traceback, *ending, *result = NULL;
    if (!PyArg_ParseTuple(args, "OOO:__exit__", &kind, &error, &traceback)) return NULL;
    ending = PyObject_CallMethod(self, "_ending", NULL);
    if (ending != NULL) result = PyObject_CallMethod(self, "_leave", "OOOO", ending, kind, error, traceback);
    if (ending == NULL) ending = blocks_surely_method(self, "_ending", NULL);
    if (result == NULL && ending != NULL) {
        PyObject *abandoned = Py_BuildValue("(O)", ending);
        if (abandoned != NULL) Py_XDECREF(blocks_surely_method(self, "_abandon", abandoned));
        Py_XDECREF(abandoned);
    }
    Py_XDECREF(ending);
    return result;
}

static PyMethodDef blocks_functions[] = {
    {"surely", blocks_surely, METH_VARARGS, NULL},
    {"__exit__", blocks_exit, METH_VARARGS,
     "__exit__($self, kind, error, traceback, /)\n--\n\nEnds the block, also if an interrupt comes meanwhile."},
};
