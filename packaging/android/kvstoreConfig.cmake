# CMake package of the library built by packaging/android/aar, for projects without Gradle. As with prefab,
# find_package(kvstore) defines kvstore::kvstore for the ABI of the NDK's toolchain file (ANDROID_ABI).
#
#     cmake -DCMAKE_TOOLCHAIN_FILE=$ANDROID_NDK_HOME/build/cmake/android.toolchain.cmake -DANDROID_ABI=arm64-v8a \
#         -DANDROID_PLATFORM=24 -Dkvstore_DIR=.../target/android/prefab ...

set(_kvstore_module "${CMAKE_CURRENT_LIST_DIR}/modules/kvstore")
if(EXISTS "${_kvstore_module}/libs/android.${ANDROID_ABI}/libkvstore.so")
    if(NOT TARGET kvstore::kvstore)
        add_library(kvstore::kvstore SHARED IMPORTED)
        set_target_properties(kvstore::kvstore PROPERTIES
            IMPORTED_LOCATION "${_kvstore_module}/libs/android.${ANDROID_ABI}/libkvstore.so"
            IMPORTED_SONAME "libkvstore.so"
            INTERFACE_INCLUDE_DIRECTORIES "${_kvstore_module}/include")
    endif()
else()
    set(kvstore_FOUND FALSE)
    set(kvstore_NOT_FOUND_MESSAGE "kvstore was not built for the ABI \"${ANDROID_ABI}\"")
endif()
unset(_kvstore_module)
