// Where are the shells that Debian has, but not every machine, and what do they offer for an unfinished command line?
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Shell } from '../../src/cli/completion/scripts.ts';
import { type Finished, run, TEST_PATH } from './command.ts';
import { libraryDirs, unpackedAt, unpackPackages } from './unpack.ts';

const UNPACKED = unpackedAt('shells');
const PROGRAMS: Readonly<Record<Shell, readonly string[]>> = {
  bash: ['/bin/bash', '/usr/bin/bash'],
  zsh: [join(UNPACKED, 'bin/zsh'), join(UNPACKED, 'usr/bin/zsh')],
  fish: [join(UNPACKED, 'usr/bin/fish')],
};

/** Whether a test file starts them. */
export function needsShells(file: string): boolean {
  return /\/completion\.test\.ts$/.test(file);
}

/** Unpacks zsh and fish, unless an earlier run did. @returns a line for the reader if it failed */
export function unpackShells(): Promise<string | undefined> {
  return unpackPackages(UNPACKED, ['zsh', 'fish']);
}

/** The program of a shell; undefined if there is none. */
export function findShell(shell: Shell): string | undefined {
  return PROGRAMS[shell].find(existsSync);
}

/**
 * Types a line in the shell and asks for its completion.
 * @param binDir where the command is
 * @param line up to the cursor
 * @returns the words that it offers, sorted
 */
export async function complete(
  shell: Shell,
  binDir: string,
  line: string,
  env: Readonly<Record<string, string>>,
): Promise<string[]> {
  // The unpacked program looks for its own functions, such as that for paths, where an installed one has them.
  const script =
    shell === 'fish'
      ? `set -p fish_function_path ${UNPACKED}/usr/share/fish/functions\ncatena help --completion fish | source\n`
      : `source <(catena help --completion ${shell})\n`;
  const all = { ...env, HOME: '/nonexistent', PATH: `${binDir}:${TEST_PATH}`, TERM: 'dumb' };
  const { stdout, stderr } = await ASK[shell](findShell(shell) ?? shell, script, line, all);
  if (stderr !== '') throw new Error(`${shell} complained: ${stderr}`);
  return [...new Set(stdout.trim().split('\n').filter(Boolean))].sort();
}

type Ask = (
  program: string,
  script: string,
  line: string,
  env: Readonly<Record<string, string>>,
) => Promise<Finished>;

const ASK: Readonly<Record<Shell, Ask>> = {
  bash(program, script, line, env) {
    // As readline splits it: "=" is a word of its own.
    const words = line.split(/ +|(?==)|(?<==)/).map(word => `'${word}'`);
    const ask = `COMP_WORDS=(${words.join(' ')}) COMP_CWORD=${words.length - 1}\n_catena\nprintf '%s\\n' "\${COMPREPLY[@]}"\n`;
    return run([program, '--norc', '-c', `${script}${ask}`], { env });
  },
  async zsh(program, script, line, env) {
    const finished = await run([...withItsFiles(), program, '-f', '-c', TYPE_IN_ZSH, 'zsh', line], {
      env: {
        ...env,
        IN_ZSH: `${IN_ZSH}${script}print IS-READY\n`,
        ZSH_PROGRAM: program,
        ZSH_SHARE: `${UNPACKED}/usr/share/zsh`,
      },
    });
    const offered = finished.stdout.matchAll(/OFFER ([^\r\n]*)/g);
    return { ...finished, stdout: Array.from(offered, ([, word]) => word).join('\n') };
  },
  async fish(program, script, line, env) {
    const libraries = { LD_LIBRARY_PATH: libraryDirs(UNPACKED).join(':') };
    const ask = `${script}complete --do-complete '${line}'\n`;
    const argv = ['env', `XDG_DATA_DIRS=${UNPACKED}/usr/share`, program, '--no-config', '-c', ask];
    const finished = await run(argv, { env: { ...env, ...libraries, HOME: UNPACKED } });
    return { ...finished, stdout: finished.stdout.replaceAll(/\t.*$/gm, '') };
  },
};

/** zsh finds its modules only where it was built for: in a mount namespace of its own they are there. */
function withItsFiles(): string[] {
  const mount = `mount -t overlay overlay -o "lowerdir=${UNPACKED}/usr:/usr" /usr && exec "$@"`;
  return ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', mount, 'sh'];
}

/** Run by a zsh with a terminal: the tab key prints what is offered, and a mark when it has ended. */
const IN_ZSH = `
fpath=($ZSH_SHARE/functions/**/*(/))
autoload -Uz compinit
compinit -D -u
complete-and-tell() { zle complete-word; print -r -- IS-DONE }
zle -N complete-and-tell
bindkey '^I' complete-and-tell
compadd() {
  local -a offered
  builtin compadd -A offered "$@"
  (( \${#offered} )) && print -rl -- "OFFER "\${^offered}
  builtin compadd "$@"
}
`;

/** Starts that zsh, types the line and the tab key, and prints what comes until the mark. */
const TYPE_IN_ZSH = `
zmodload zsh/zpty
zpty z $ZSH_PROGRAM -f -i
zpty -w z 'eval "$IN_ZSH"'
zpty -r -m z before '*IS-READY[^"]*2004h*'
zpty -w -n z "$1"$'\\t'
zpty -r -m z offered '*IS-DONE*'
print -r -- "$offered"
zpty -d z
`;
