# SPDX-License-Identifier: Apache-2.0
# An RPM package: `cpack -G RPM` in the build directory, on the distribution that it is for. The libraries that it was
# linked with are its requirements, in their versions, so that rpm refuses it elsewhere.
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
set(CPACK_RPM_PACKAGE_GROUP System/Filesystems)
set(CPACK_RPM_PACKAGE_DESCRIPTION "A FUSE filesystem that presents an S3 prefix as a directory to save checkpoints to\
 and to load them from. Writes become parallel multipart uploads, reads parallel ranged downloads; files are compressed\
 by what their bytes are, and appear whole or not at all.")
set(CPACK_RPM_PACKAGE_REQUIRES "fuse3, ca-certificates")
set(CPACK_RPM_PACKAGE_RELEASE_DIST ON)
# No debuginfo package; the directories belong to other packages.
set(CPACK_RPM_SPEC_MORE_DEFINE "%define _build_id_links none")
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
    /usr/lib/systemd /usr/lib/systemd/system /usr/sbin /usr/share/bash-completion
    /usr/share/bash-completion/completions /usr/share/man /usr/share/man/man1 /usr/share/man/man5 /usr/share/man/man7
    /usr/share/man/man8)
set(CPACK_RPM_POST_INSTALL_SCRIPT_FILE ${CMAKE_CURRENT_SOURCE_DIR}/rpm/post-install)
set(CPACK_RPM_PRE_UNINSTALL_SCRIPT_FILE ${CMAKE_CURRENT_SOURCE_DIR}/rpm/pre-uninstall)
set(CPACK_RPM_POST_UNINSTALL_SCRIPT_FILE ${CMAKE_CURRENT_SOURCE_DIR}/rpm/post-uninstall)
