/* complete(module), a function of the extension module: adds the Python types of rows.c and handles.c and the
 * functions of values.c, blocks.c and waits.c. _native.py calls it in each interpreter, because cffi creates one
 * module whose contents the other interpreters copy, while Python objects end with their interpreter. It is a Python
 * function, so it runs in the calling interpreter; a C function, which cffi calls without the GIL, would run in the
 * main interpreter before CPython 3.12 (PyGILState_Ensure). For the same reason, no static variable here or in those
 * files may hold a Python object. Stable ABI only. */

/* Sets an attribute and takes over the reference. -1: an exception, also if object is NULL. */
static int module_put(PyObject *module, const char *name, PyObject *object)
{
    int done = object == NULL ? -1 : PyObject_SetAttrString(module, name, object);
    Py_XDECREF(object);
    return done;
}

static PyObject *module_complete(PyObject *self, PyObject *module)
{
    (void)self;
    if (module_put(module, "Rows", PyType_FromSpec(&rows_spec)) < 0
        || module_put(module, "Handles", PyType_FromSpec(&handles_spec)) < 0
        || module_put(module, "surely", PyCFunction_New(&blocks_functions[0], NULL)) < 0
        || module_put(module, "long_value", PyCFunction_New(&values_function, NULL)) < 0
        || module_put(module, "watch_signals", PyCFunction_New(&waits_function, NULL)) < 0
        || module_put(module, "leave", PyDescr_NewMethod(&PyBaseObject_Type, &blocks_functions[1])) < 0)
        return NULL;
    Py_INCREF(Py_None);
    return Py_None;
}

static PyMethodDef module_function = {"complete", module_complete, METH_O, NULL};

/* Adds complete() to the module that cffi creates; called from the generated PyInit_. */
static PyObject *module_begin(PyObject *module)
{
    if (module != NULL && module_put(module, "complete", PyCFunction_New(&module_function, NULL)) < 0) Py_CLEAR(module);
    return module;
}

#define _cffi_init(name, version, context) module_begin(_cffi_init(name, version, context))
