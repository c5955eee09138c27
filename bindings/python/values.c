/* Reads of long values into new bytes objects, without a copy in between. Stable ABI only. */

/* long_value(cf, key, length): reads the value of a key of a family. `cf` is the address of a handle that the
 * caller keeps open; `length` is the expected length of the value. Returns the value as bytes, or the result
 * code as int if the read fails. */
static PyObject *values_long(PyObject *module, PyObject *args)
{
    unsigned long long address;
    PyObject *key, *value;
    int length, found, rc;
    (void)module;
    if (!PyArg_ParseTuple(args, "KSi:long_value", &address, &key, &length)) return NULL;
    for (;;) {
        const char *key_bytes = PyBytes_AsString(key);
        int key_length = (int)PyBytes_Size(key); /* checked by the read that found the length */
        char *bytes;
        value = PyBytes_FromStringAndSize(NULL, length);
        if (value == NULL) return NULL;
        bytes = PyBytes_AsString(value);
        found = 0;
        Py_BEGIN_ALLOW_THREADS
        rc = kvstore_cf_get_into((KVColumnFamily *)(uintptr_t)address, key_bytes, key_length, bytes, length, &found);
        Py_END_ALLOW_THREADS
        if (rc == KVSTORE_OK && found == length) return value;
        Py_DECREF(value);
        if (rc != KVSTORE_OK) return PyLong_FromLong(rc);
        length = found; /* another value was written meanwhile */
    }
}

static PyMethodDef values_function = {"long_value", values_long, METH_VARARGS, NULL};
