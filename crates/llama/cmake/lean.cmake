# Included by llama.cpp's own CMakeLists.txt right after its project() call (CMAKE_PROJECT_INCLUDE, set in
# .cargo/config.toml). It takes time out of the build and an optional system library out of the result;
# it changes nothing in the code that computes (ggml and llama keep their flags).
if(PROJECT_IS_TOP_LEVEL AND PROJECT_NAME STREQUAL "llama.cpp")
    # Otherwise a present libssl-dev would be picked up by the bundled HTTP client, which is never called.
    set(LLAMA_OPENSSL OFF CACHE BOOL "" FORCE)
    # The binding insists on llama-common (argument parsing, chat parsers, downloads). It is half of the build's
    # work at -O3, and nothing in it is on a path of ours.
    cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL target_compile_options llama-common PRIVATE -O1)
    cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL target_compile_options cpp-httplib PRIVATE -O1)
    if(GGML_BACKEND_DL)
        # Shared libraries and modules lie in one folder, wherever that is.
        set(CMAKE_INSTALL_RPATH "$ORIGIN")
        # This target only finds and loads the modules. With NDEBUG it hides why one of them cannot be loaded.
        cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL target_compile_options ggml PRIVATE -UNDEBUG)
        # For who works on this and will not wait for every kind of processor's code: one module for AVX2.
        if("$ENV{PODIUM_LLAMA_CPU_MODULES}" STREQUAL "one")
            set(GGML_CPU_ALL_VARIANTS OFF CACHE BOOL "" FORCE)
        endif()
    endif()
endif()
