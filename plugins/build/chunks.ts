// Which modules of the executable are loaded in one piece?
//
// Bun makes a chunk of each set of modules that the same import() calls reach. Dozens of such calls share modules in as many
// combinations, so without help a plugin's start loads some forty-five chunks, at 45 microseconds each, although most of them are
// always loaded together. Here, modules that the same kinds of process need form a layer. Whatever imports one of them at run time
// imports all of them, and Bun puts them into one chunk.
import fs from 'node:fs';
import path from 'node:path';
import type { BunPlugin } from 'bun';

const ROOT = path.resolve(import.meta.dir, '../..');

/**
 * What the processes load of which a node starts most, with all that these modules import statically. Another plugin's modules
 * share these layers, and what is its own is divided by Bun.
 */
export const PROCESSES: Readonly<Record<string, readonly string[]>> = {
  plugin: ['src/plugin/run.ts', 'src/observe/history.ts', 'src/netlink/rtnl/link.ts'],
  // The command starts its worker with this before it loads the rest.
  early: ['src/worker/process.ts'],
  command: [
    'src/cli/main.ts',
    'src/cli/commands/add.ts',
    'src/cli/commands/check.ts',
    'src/cli/commands/del.ts',
  ],
  worker: ['src/worker/worker.ts'],
  bandwidth: ['plugins/bandwidth/plugin.ts'],
  bridge: ['plugins/bridge/plugin.ts'],
  cluster: ['plugins/cluster/plugin.ts'],
  dhcp: ['plugins/dhcp/plugin.ts'],
  firewall: ['plugins/firewall/plugin.ts'],
  'host-device': ['plugins/host-device/plugin.ts'],
  'host-local': ['plugins/host-local/plugin.ts'],
  macvlan: ['plugins/macvlan/plugin.ts'],
  portmap: ['plugins/portmap/plugin.ts'],
  ptp: ['plugins/ptp/plugin.ts'],
  tuning: ['plugins/tuning/plugin.ts'],
};

/** A chunk costs about as much as loading this many bytes of source that the process does not need. */
const WORTH_A_CHUNK_BYTES = 12_000;

/** The modules that the executable may load. */
interface Graph {
  /** What each module imports statically, by path. */
  readonly imports: ReadonlyMap<string, readonly string[]>;
  /** The name of a value that each module exports. */
  readonly values: ReadonlyMap<string, string>;
  /** What is imported at run time: each begins a chunk. */
  readonly entries: ReadonlySet<string>;
}

type Layers = ReadonlyMap<string, readonly string[]>;

/**
 * @param entry the module with which the executable begins
 * @param resolve the path of a module that is no relative one; undefined for a package
 */
export function joinChunks(entry: string, resolve: (name: string) => string | undefined): BunPlugin {
  const graph = readGraph(entry, resolve);
  const layers = layersOf(entry, graph);
  return {
    name: 'joined chunks',
    setup(builder) {
      builder.onResolve({ filter: /^layer:/ }, ({ path }) => ({ path, namespace: 'layer' }));
      builder.onLoad({ filter: /./, namespace: 'layer' }, ({ path }) => {
        return { loader: 'ts', contents: useOf(layers.get(path) ?? [], graph) };
      });
      builder.onLoad({ filter: /\.ts$/ }, ({ path }) => {
        if (!graph.entries.has(path)) return undefined;
        const imports = neededLayers(path, graph, layers).map(layer => `import '${layer}';`);
        const code = fs.readFileSync(path, 'utf8');
        return { loader: 'ts', contents: code.replace(/^(#!.*\n)?/, `$1${imports.join('')}`) };
      });
    },
  };
}

function readGraph(entry: string, resolve: (name: string) => string | undefined): Graph {
  const transpiler = new Bun.Transpiler({ loader: 'ts' });
  const imports = new Map<string, string[]>();
  const values = new Map<string, string>();
  const entries = new Set([entry]);
  const visit = (module: string): void => {
    if (imports.has(module)) return;
    const own: string[] = [];
    imports.set(module, own);
    const scanned = transpiler.scan(fs.readFileSync(module, 'utf8'));
    const [value] = scanned.exports;
    if (value !== undefined) values.set(module, value);
    for (const { path: name, kind } of scanned.imports) {
      const file = name.startsWith('.') ? path.resolve(path.dirname(module), name) : resolve(name);
      if (!file?.endsWith('.ts')) continue;
      if (kind === 'import-statement') own.push(file);
      else entries.add(file);
      visit(file);
    }
  };
  visit(entry);
  return { imports, values, entries };
}

/** Modules by the kinds of process that load them. */
function layersOf(entry: string, graph: Graph): Layers {
  const kindsOf = new Map<string, string[]>();
  for (const [kind, roots] of Object.entries({ start: [entry], ...PROCESSES })) {
    const modules = closureOf(
      roots.map(root => path.resolve(ROOT, root)),
      graph,
    );
    for (const module of modules) kindsOf.set(module, [...(kindsOf.get(module) ?? []), kind]);
  }
  const layers = new Map<string, Layer>();
  for (const [module, kinds] of kindsOf) {
    // An entry is in no other's chunk.
    if (module === entry || !graph.values.has(module)) continue;
    // What every process loads first, all of them have.
    const needed = kinds.includes('start') ? ['start'] : kinds;
    const name = `layer:${needed.join('+')}`;
    layers.set(name, { kinds: needed, modules: [...(layers.get(name)?.modules ?? []), module] });
  }
  joinSmall(layers);
  return new Map([...layers].map(([name, { modules }]) => [name, modules]));
}

interface Layer {
  readonly kinds: readonly string[];
  readonly modules: string[];
}

/** Small layers become part of one that more kinds of process load, but the command loads none for the sake of plugins. */
function joinSmall(layers: Map<string, Layer>): void {
  const sizeOf = ({ modules }: Layer) => modules.reduce((sum, module) => sum + fs.statSync(module).size, 0);
  const bySize = [...layers].sort(([, a], [, b]) => sizeOf(a) - sizeOf(b));
  for (const [name, layer] of bySize) {
    if (sizeOf(layer) > WORTH_A_CHUNK_BYTES) continue;
    const [wider] = [...layers.values()]
      .filter(({ kinds }) => kinds.length > layer.kinds.length)
      .filter(({ kinds }) => layer.kinds.every(one => kinds.includes(one)))
      .filter(({ kinds }) => kinds.includes('command') === layer.kinds.includes('command'))
      .sort((a, b) => a.kinds.length - b.kinds.length);
    if (wider === undefined) continue;
    wider.modules.push(...layer.modules);
    layers.delete(name);
  }
}

function closureOf(modules: readonly string[], { imports }: Graph): Set<string> {
  const found = new Set<string>();
  const visit = (module: string): void => {
    if (found.has(module) || !imports.has(module)) return;
    found.add(module);
    imports.get(module)?.forEach(visit);
  };
  modules.forEach(visit);
  return found;
}

/** The layers of which an entry imports a part, also by way of other layers. */
function neededLayers(entry: string, graph: Graph, layers: Layers): string[] {
  const needed = new Set<string>();
  let modules = closureOf([entry], graph);
  for (;;) {
    const more = [...layers].filter(([name, own]) => !needed.has(name) && own.some(one => modules.has(one)));
    if (more.length === 0) return [...needed];
    for (const [name] of more) needed.add(name);
    modules = closureOf([...modules, ...more.flatMap(([, own]) => own)], graph);
  }
}

/** Imports that are only made for their effect are left out of the bundle, so each module's value is used, in a call. */
function useOf(modules: readonly string[], { values }: Graph): string {
  const imports = modules.map(
    (module, i) => `import { ${values.get(module)} as $${i} } from ${JSON.stringify(module)};`,
  );
  return `${imports.join('\n')}\nObject([${modules.map((_, i) => `$${i}`).join()}]);\n`;
}
