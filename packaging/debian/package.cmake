# SPDX-License-Identifier: Apache-2.0
# The Debian package: cmake --build BUILD --target package
set(CPACK_GENERATOR DEB)
# Without them there is no package, or one that does not name the libraries it needs.
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/needs.cmake)
set(CPACK_PACKAGE_CONTACT "ckptfs <root@localhost>")
set(CPACK_PACKAGE_VENDOR ckptfs)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "S3 as a directory for checkpoints")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "A FUSE filesystem that presents an S3 prefix as a directory to save checkpoints to\
 and to load them from.\n Writes become parallel multipart uploads, reads parallel ranged downloads; files are\
 compressed by what their bytes are, and appear whole or not at all.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/package)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# fusermount3 and mount.fuse3; the authorities that sign the store's certificate.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "fuse3, ca-certificates")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${CMAKE_CURRENT_SOURCE_DIR}/debian/postinst
    ${CMAKE_CURRENT_SOURCE_DIR}/debian/prerm
    ${CMAKE_CURRENT_SOURCE_DIR}/debian/postrm)
include(CPack)
