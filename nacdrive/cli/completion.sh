_nacdrive() {
  local words="${COMP_WORDS[*]:1:COMP_CWORD-1}" current="${COMP_WORDS[COMP_CWORD]}" known=""
  case "$words" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$known" -- "$current"))
  [[ "$current" != -* && ( -z "$known" || "$known" == -* ) ]] && COMPREPLY=($(compgen -f -- "$current"))
  return 0
}
complete -o filenames -F _nacdrive nacdrive
