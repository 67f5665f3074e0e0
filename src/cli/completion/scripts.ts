// How does a shell ask the tool what a word may become?
import { COMPLETE, type SHELLS } from './question.ts';

export type Shell = (typeof SHELLS)[number];

const BASH = `# Completion of catena for bash. The words come from the tool itself.
_catena() {
    local tool=\${COMP_WORDS[0]/#\\~/$HOME} current=\${COMP_WORDS[COMP_CWORD]} value about path
    [[ $current == '=' ]] && current=
    COMPREPLY=()
    while IFS=$'\\t' read -r value about; do
        case $value in
            :files | :dirs)
                compopt -o filenames 2>/dev/null
                while IFS= read -r path; do
                    COMPREPLY+=("$path")
                done < <(if [[ $value == :dirs ]]; then compgen -d -- "$current"; else compgen -f -- "$current"; fi)
                ;;
            *) COMPREPLY+=("$value") ;;
        esac
    done < <("$tool" ${COMPLETE} "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _catena catena
`;

const ZSH = `#compdef catena
# Completion of catena for zsh. The words come from the tool itself.
_catena() {
    local line value paths
    local -a found
    while IFS= read -r line; do
        case $line in
            :files | :dirs) paths=$line ;;
            *)
                value=\${line%%$'\\t'*}
                found+=("\${value//:/\\\\:}:\${line#*$'\\t'}")
                ;;
        esac
    done < <("\${(Q)words[1]/#\\~/$HOME}" ${COMPLETE} "\${(@Q)words[2,CURRENT]}" 2>/dev/null)
    (( \${#found} )) && _describe -V catena found
    [[ -n $paths ]] && compset -P '--*='
    case $paths in
        :files) _files ;;
        :dirs) _files -/ ;;
    esac
}
if [[ \${funcstack[1]} == _catena ]]; then
    _catena "$@"
else
    compdef _catena catena
fi
`;

const FISH = `# Completion of catena for fish. The words come from the tool itself.
function __catena_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l prefix (string match --regex -- '^--[^=]*=' "$current")
    set -l path (string replace --regex -- '^--[^=]*=' '' "$current")
    for line in ($words[1] ${COMPLETE} $words[2..-1] "$current" 2>/dev/null)
        switch $line
            case :files
                printf "$prefix%s\\n" (__fish_complete_path "$path")
            case :dirs
                printf "$prefix%s\\n" (__fish_complete_directories "$path" '')
            case '*'
                printf '%s\\n' $line
        end
    end
end
complete --command catena --no-files --keep-order --arguments '(__catena_complete)'
`;

/** The text that a shell reads. */
export const SCRIPTS: Readonly<Record<Shell, string>> = { bash: BASH, zsh: ZSH, fish: FISH };

/** Where each shell looks for it, below a directory such as /usr/local/share. */
export const SCRIPT_PATHS: Readonly<Record<Shell, string>> = {
  bash: 'bash-completion/completions/catena',
  zsh: 'zsh/site-functions/_catena',
  fish: 'fish/vendor_completions.d/catena.fish',
};
