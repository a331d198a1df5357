#compdef gavel
# zsh completion for gavel: put this file into a folder of $fpath as _gavel.
_gavel() {
    local line files=0
    local -a candidates
    while IFS= read -r line; do
        if [[ $line == :files ]]; then
            files=1
        else
            candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        fi
    done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#candidates} )) && _describe 'gavel' candidates
    (( files )) && _files
    return 0
}
if [[ ${funcstack[1]} == _gavel ]]; then
    _gavel "$@"
else
    compdef _gavel gavel
fi
