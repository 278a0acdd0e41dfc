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
endif()
