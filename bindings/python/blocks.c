/* An __exit__ for with blocks that always runs, even if a KeyboardInterrupt (Ctrl-C) is pending. Python runs
 * signal handlers at the first step of a Python function, after calls and in loops, but never between the end
 * of a block and an __exit__ implemented in C. So __exit__ is here, and calls Python methods of the classes.
 * (In Python 3.9 an interrupt can also be raised before __exit__ is called, in 3.10 a second one can.) What a
 * block releases does not belong here. Stable ABI only. */

/** How often an interrupted call is repeated. */
enum { BLOCKS_TRIES = 100 };

/* Calls a function until it returns without an exception. NULL: every call raised; the last exception is set.
 * After an interrupt, `interrupted` or during a call, the following calls wait for no lock. */
static PyObject *blocks_call(PyObject *function, PyObject *args, int interrupted)
{
    PyObject *result = NULL;
    int refused = waits_refused, tries;
    for (tries = 0; result == NULL && tries < BLOCKS_TRIES; tries++) {
        PyErr_Clear();
        waits_refused = refused || interrupted || tries > 0;
        result = PyObject_CallObject(function, args);
    }
    waits_refused = refused;
    return result;
}

/* surely(function, *args): calls a function, and again if it raises an interrupt. For functions that can be
 * resumed by calling them again. */
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
    result = blocks_call(PyTuple_GetItem(args, 0), rest, 0);
    Py_DECREF(rest);
    return result;
}

/* Like surely, for a method, and while an exception is set, which is kept. */
static PyObject *blocks_surely_method(PyObject *self, const char *name, PyObject *args)
{
    PyObject *type, *value, *traceback, *method, *result = NULL;
    int interrupted = !PyErr_ExceptionMatches(PyExc_Exception);
    PyErr_Fetch(&type, &value, &traceback);
    method = PyObject_GetAttrString(self, name);
    if (method != NULL) result = blocks_call(method, args, interrupted);
    Py_XDECREF(method);
    PyErr_Restore(type, value, traceback);
    return result;
}

/* __exit__(kind, error, traceback): calls self._leave(ending, kind, error, traceback), where ending is the result of
 * self._ending(). If either raises, calls self._abandon(ending), which releases the rest. */
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
     "__exit__($self, kind, error, traceback, /)\n--\n\nEnd the block, even if it is interrupted."},
};
