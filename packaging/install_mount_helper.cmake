# SPDX-License-Identifier: Apache-2.0
# The link by which mount(8) finds ckptfs. mount(8) looks in /sbin, whatever the prefix; only a prefix that is no
# system's (a package's staging directory, a home directory) has a sbin of its own.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr/local")
    set(directory "/usr/sbin")
    set(program "/usr/local/bin/ckptfs")
else()
    set(directory "${CMAKE_INSTALL_PREFIX}/sbin")
    set(program "../bin/ckptfs")
endif()
message(STATUS "Installing: $ENV{DESTDIR}${directory}/mount.ckptfs")
file(MAKE_DIRECTORY "$ENV{DESTDIR}${directory}")
file(CREATE_LINK "${program}" "$ENV{DESTDIR}${directory}/mount.ckptfs" SYMBOLIC)
