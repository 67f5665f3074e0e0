// How does a shell ask the tool what a word may become?
import bash from './catena.bash.txt' with { type: 'text' };
import fish from './catena.fish.txt' with { type: 'text' };
import zsh from './catena.zsh.txt' with { type: 'text' };
import type { SHELLS } from './question.ts';

export type Shell = (typeof SHELLS)[number];

export const SCRIPTS: Readonly<Record<Shell, string>> = { bash, zsh, fish };

/** Where each shell looks for it, below a directory such as /usr/local/share. */
export const SCRIPT_PATHS: Readonly<Record<Shell, string>> = {
  bash: 'bash-completion/completions/catena',
  zsh: 'zsh/site-functions/_catena',
  fish: 'fish/vendor_completions.d/catena.fish',
};
