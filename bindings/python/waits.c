/* Signals during a wait for a lock. Python runs signal handlers in the main thread, between two steps of Python
 * code. A call of the library that waits there would hold them back until the wait is over. So the library asks
 * waits_end() meanwhile, which runs the handlers. If one raises an exception (KeyboardInterrupt), the wait ends,
 * and the exception is raised at the next step of Python code, as after any call. Stable ABI only. */

#include <pythread.h>

/** The main thread of the main interpreter; 0: unknown. */
static unsigned long waits_thread;
/** Whether the exception of a signal handler is about to be raised in that thread. */
static int waits_raised;
/** Whether the library waits for no lock in this thread. */
static KVPY_EACH_THREAD int waits_refused;

/** The flag of kvpy_watch_flag. */
static KVPY_EACH_THREAD volatile int *waits_flag;

void kvpy_watch_flag(int *flag)
{
    waits_flag = flag;
}

/* Raises the exception of a signal handler. Called by Python in the main thread. */
static int waits_raise(void *exception)
{
    PyObject *error = (PyObject *)exception;
    waits_raised = 0;
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
    return -1;
}

/* The function of kvstore_set_wait_hook. Called without the GIL, in any thread. */
static int waits_end(void *context)
{
    PyGILState_STATE state;
    (void)context;
    if (waits_refused || (waits_flag != NULL && *waits_flag)) return 1;
    if (waits_thread == 0 || PyThread_get_thread_ident() != waits_thread) return 0;
    if (waits_raised) return 1;
    state = PyGILState_Ensure();
    if (PyErr_CheckSignals() < 0) {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        PyErr_NormalizeException(&type, &error, &traceback);
        if (traceback != NULL) PyException_SetTraceback(error, traceback);
        waits_raised = 1;
        if (Py_AddPendingCall(waits_raise, error) < 0) { /* too many of them: the wait goes on */
            waits_raised = 0;
            Py_DECREF(error);
        }
        Py_XDECREF(type);
        Py_XDECREF(traceback);
    }
    PyGILState_Release(state);
    return waits_raised;
}

/* watch_signals(thread): runs signal handlers while that thread waits, which must be the main thread; 0: no longer.
 * Does nothing in other interpreters than the main one, which run no signal handlers. */
static PyObject *waits_watch_signals(PyObject *module, PyObject *thread)
{
    unsigned long number = PyLong_AsUnsignedLong(thread);
    (void)module;
    if (number == (unsigned long)-1 && PyErr_Occurred()) return NULL;
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) {
        waits_thread = number;
        waits_raised = 0;
        kvstore_set_wait_hook(waits_end, NULL);
    }
    Py_INCREF(Py_None);
    return Py_None;
}

static PyMethodDef waits_function = {"watch_signals", waits_watch_signals, METH_O, NULL};
