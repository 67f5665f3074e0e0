// What does `catena explain` do?
import { existsSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { Conflist } from '../../chain/config/conflist.ts';
import { loadFile, loadNetwork } from '../../chain/config/load.ts';
import { explainCode } from '../../explain/codes.ts';
import { explainList } from '../../explain/list.ts';
import { absolutePath } from '../../files/absolute-path.ts';
import { readCandidates } from '../../runtimes/candidate.ts';
import { readConfigured } from '../../runtimes/configured.ts';
import { choose, RUNTIMES } from '../../runtimes/rules.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { type RuntimeVerdict, renderCode, renderList } from '../explain-render.ts';
import { confDirOf } from '../target.ts';
import { widthOf } from '../terminal/width.ts';

/** Where the output is no terminal. */
const WIDTH = 80;

/** Explains an error code, or every line of a list. */
export async function run(call: CommandCall): Promise<number> {
  const [what = ''] = call.positionals;
  const width = widthOf(call) ?? WIDTH;
  if (/^\d+$/.test(what)) {
    const explanation = explainCode(Number(what));
    if (explanation === undefined) {
      throw new UsageError(
        `Cannot explain code ${what}: the specification reserves the codes below 100 and does not define this one`,
      );
    }
    call.out(call.on('json') ? `${JSON.stringify(explanation, null, 4)}\n` : renderCode(explanation, width));
    return 0;
  }
  const { list, file, dir } = find(call, what);
  const explanation = await explainList(list, call.plugins);
  const runtimes = await verdictsOn(list, dir, file);
  if (call.on('json')) call.out(`${JSON.stringify({ ...explanation, runtimes }, null, 4)}\n`);
  else call.out(renderList(explanation, runtimes, width));
  return 0;
}

/** A file if there is one of that name, else a network of the configuration directory. */
function find(
  call: CommandCall,
  what: string,
): { readonly list: Conflist; readonly dir: string; readonly file?: string } {
  const path = absolutePath(what, call.cwd);
  if (existsSync(path)) return { list: loadFile(path), dir: dirname(path), file: basename(path) };
  const dir = confDirOf(call);
  return { list: loadNetwork(dir, what), dir };
}

/** Which runtimes would use the list if its directory is the one they read. */
async function verdictsOn(list: Conflist, dir: string, file: string | undefined): Promise<RuntimeVerdict[]> {
  const candidates = await readCandidates(dir);
  const configured = readConfigured('/etc');
  const name = file ?? candidates.find(one => one.list?.name === list.name)?.name;
  return RUNTIMES.flatMap(runtime => {
    const own = configured.find(one => one.runtime === runtime);
    const { verdicts } = choose(runtime, candidates, { ...own });
    return verdicts.filter(verdict => verdict.file === name).map(({ used, why }) => ({ runtime, used, why }));
  });
}
