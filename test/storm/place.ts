// Where does a node keep its executables and configurations?

import fs from 'node:fs';
import { dirname } from 'node:path';
import type { NetLetter } from './history.ts';
import { LETTERS, NETS, SUBNETS } from './networks.ts';

/** Directories of one node; all else is where a machine has it, in mounts of the node's own. */
export class Place {
  /** Holds this node's files, on the file system of the executables. */
  readonly dir: string;
  /** Two builds, `A` and `B`: the same bytes in different files. */
  readonly #builds: string;
  #build = 'A';

  constructor(root: string, node: string) {
    this.dir = `${root}/nodes/${node}`;
    this.#builds = root;
  }

  /** Each network has executables of its own, so that one is swapped for that network alone. */
  bin(net: NetLetter): string {
    return `${this.dir}/bin-${net}`;
  }

  get confDir(): string {
    return `${this.dir}/net.d`;
  }

  /** The command that the daemon is started from. */
  get catena(): string {
    return `${this.bin('a')}/catena`;
  }

  /** Settings of a daemon that repairs. */
  get repairing(): string {
    return `${this.dir}/repairing.json`;
  }

  make(): void {
    fs.mkdirSync(this.confDir, { recursive: true });
    fs.writeFileSync(this.repairing, JSON.stringify({ watch: 'repair', watchSeconds: 1 }));
    for (const net of LETTERS) {
      fs.writeFileSync(`${this.confDir}/${NETS[net].name}.conflist`, NETS[net].source);
      fs.mkdirSync(this.bin(net), { recursive: true });
      this.#lay(net);
    }
    fs.writeFileSync(`${this.bin('f')}/gate-ipam`, GATE, { mode: 0o755 });
    fs.mkdirSync(GATES, { recursive: true });
    fs.mkdirSync(dirname(SUBNETS.file), { recursive: true });
    fs.writeFileSync(SUBNETS.file, SUBNETS.text);
  }

  /** Puts the other build in place, each name by a rename, as an installation does. */
  upgrade(): void {
    this.#build = this.#build === 'A' ? 'B' : 'A';
    for (const net of LETTERS) this.#lay(net);
  }

  #lay(net: NetLetter): void {
    const from = `${this.#builds}/${this.#build}`;
    for (const name of fs.readdirSync(from)) {
      fs.linkSync(`${from}/${name}`, `${this.bin(net)}/.new-${name}`);
      fs.renameSync(`${this.bin(net)}/.new-${name}`, `${this.bin(net)}/${name}`);
    }
  }
}

/**
 * A file here makes the foreign IPAM plugin wait for its removal on ADD; its text says how it answers then. `stuck` makes DEL fail, which has
 * released the addresses: so nothing that it made is left once it is forgotten.
 */
export const GATES = '/run/gates';

const GATE = `#!/bin/sh
gate=${GATES}/$CNI_CONTAINERID
fail() {
  printf '{"cniVersion":"1.0.0","code":101,"msg":"the foreign plugin fails"}'
  exit 1
}
mode=
[ -e "$gate" ] && read -r mode <"$gate"
case "$CNI_COMMAND $mode" in
"DEL stuck")
  "\${0%/*}/host-local" >/dev/null
  fail
  ;;
"ADD late" | "ADD fail" | "ADD killed")
  : >"$gate.waits"
  while [ -e "$gate" ]; do sleep 0.05; done
  if [ "$mode" = fail ]; then
    cat >/dev/null
    fail
  fi
  ;;
esac
exec "\${0%/*}/host-local"
`;
