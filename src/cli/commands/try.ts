// What does `catena try` do?
import { dirname, resolve } from 'node:path';
import { isatty } from 'node:tty';
import { loadFile } from '../../chain/load.ts';
import { parseCniArgs } from '../../cni/cni-args.ts';
import { type JsonObject, parseObject } from '../../cni/json.ts';
import { layGround } from '../../lab/ground.ts';
import { RIGHTS_VARIABLE, type Rights, rerunInNamespaces } from '../../lab/reexec.ts';
import { renderSection } from '../../lab/render.ts';
import { type Section, toJson } from '../../lab/report.ts';
import { tryChain } from '../../lab/try.ts';
import type { CommandCall } from '../command.ts';

/** Directories that could lead links out of the lab. */
const OWN_VARIABLES = ['CATENA_RUN_DIR', 'CATENA_STATE_DIR', 'CATENA_CNI_CACHE_DIR', RIGHTS_VARIABLE];

/** Runs a list in throwaway namespaces, which takes a second process: this one starts it, that one does the work. */
export async function run(call: CommandCall): Promise<number> {
  const rights = call.env[RIGHTS_VARIABLE] as Rights | undefined;
  if (rights !== undefined) return (await tryInside(call, rights)) ? 0 : 1;
  // What is wrong with the file or the arguments is better said before anything is made.
  readTrial(call);
  const { exitCode, stderr } = rerunInNamespaces(call.env);
  call.err(stderr);
  return exitCode;
}

async function tryInside(call: CommandCall, rights: Rights): Promise<boolean> {
  const trial = readTrial(call);
  // The executable itself, since links are started from it.
  const shown = [...trial.pluginDirs, dirname(process.execPath)];
  layGround(shown);
  const sections: Section[] = [];
  const style = { colour: isatty(1) && !call.env.NO_COLOR };
  const ok = await tryChain({
    ...trial,
    shown,
    rootless: rights === 'user',
    keepGoing: call.on('keep-going'),
    env: Object.fromEntries(Object.entries(call.env).filter(([name]) => !OWN_VARIABLES.includes(name))),
    tell(section) {
      if (call.on('json')) sections.push(section);
      else call.out(renderSection(section, style));
    },
  });
  if (call.on('json')) call.out(`${JSON.stringify(toJson(sections), null, 2)}\n`);
  return ok;
}

function readTrial(call: CommandCall) {
  const [file = ''] = call.positionals;
  const dirs = call.texts('bin-dir');
  const cap = call.text('cap');
  return {
    list: loadFile(file),
    pluginDirs: (dirs.length ? dirs : [dirname(process.execPath)]).map(dir => resolve(dir)),
    ifname: call.text('ifname') || 'eth0',
    args: parseCniArgs(call.text('args') ?? ''),
    capabilities: (cap ? parseObject(cap, 'capability arguments (--cap)') : {}) as JsonObject,
  };
}
