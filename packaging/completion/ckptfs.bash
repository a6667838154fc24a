# SPDX-License-Identifier: Apache-2.0
# Completion for bash(1). Commands and options are asked of ckptfs itself, so that they are those of its version.

# The flags that a command's --help names; those that take a value end in "=" where $2 is given.
_ckptfs_flags()
{
    local line
    ckptfs ${1:+"$1"} --help 2>/dev/null | while read -r line; do
        [[ $line =~ ^(-[a-zA-Z],)?(--[a-z0-9-]+)(,-[a-zA-Z])?(\ +[A-Z][A-Z,…]*)? ]] || continue
        printf '%s%s\n' "${BASH_REMATCH[2]}" "${2:+${BASH_REMATCH[4]:+=}}"
    done
}

_ckptfs_commands()
{
    local line
    ckptfs --help 2>/dev/null | sed -n '/^Subcommands:/,$ s/^  \([a-z]\+\) .*/\1/p'
}

# One of the words behind -o: what is before the last comma stays.
_ckptfs_mount_options()
{
    local before=${1%"${1##*,}"} options
    options=$(_ckptfs_flags mount = | sed 's/^--//')
    compopt -o nospace
    mapfile -t COMPREPLY < <(compgen -P "$before" -W "ro rw _netdev nofail noauto $options" -- "${1##*,}")
}

_ckptfs()
{
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$(_ckptfs_commands) --help --version" -- "$current")
    elif [[ $previous == -o ]]; then
        _ckptfs_mount_options "$current"
    elif [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_ckptfs_flags "$command")" -- "$current")
    elif [[ $previous == --*-file || $previous == --access-log || $previous == --ca-bundle ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    elif [[ $command =~ ^(inspect|cat|verify|warm|drop)$ ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    elif [[ $command == unmount || $command == status ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(findmnt -n -l -o TARGET -t fuse.ckptfs 2>/dev/null)" -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -d -- "$current")
    fi
}

complete -F _ckptfs ckptfs
