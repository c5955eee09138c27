/* complete(module), a function of the extension module: puts in what is Python's and not C's, the types of rows.c and
 * handles.c and the functions of blocks.c. _native.py calls it in each interpreter: of the module cffi makes one, whose
 * contents the others copy, and objects of one interpreter end with it. As Python's function it runs in the interpreter
 * that calls; one of C, which cffi calls without the GIL, would be in the main one before CPython 3.12
 * (PyGILState_Ensure). No static variable may have an object here or in those files, for the same reason. Stable ABI
 * only. */

/* Takes the reference; -1: an exception, also if there is no object. */
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
        || module_put(module, "leave", PyDescr_NewMethod(&PyBaseObject_Type, &blocks_functions[1])) < 0)
        return NULL;
    Py_INCREF(Py_None);
    return Py_None;
}

static PyMethodDef module_function = {"complete", module_complete, METH_O, NULL};

/* What the module's PyInit_, which cffi writes, has got from cffi. */
static PyObject *module_begin(PyObject *module)
{
    if (module != NULL && module_put(module, "complete", PyCFunction_New(&module_function, NULL)) < 0) Py_CLEAR(module);
    return module;
}

#define _cffi_init(name, version, context) module_begin(_cffi_init(name, version, context))
