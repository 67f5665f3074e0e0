// What does the npm package contain besides sources: JavaScript for Node, types, JSON Schemas?
//
// Its `dependencies` are what the library loads. Packages that only executables load (the daemon's gRPC and metrics, Kubernetes,
// D-Bus) are devDependencies, since the build bundles them, and optional peers, which npm does not install. A project that runs these
// parts from the package's sources installs the peers that it needs.
import fs from 'node:fs';
import path from 'node:path';
import manifest from '../../package.json' with { type: 'json' };
import { withForeign } from '../../src/cli/foreign/catalog.ts';
import { KNOWN_TYPES, loadAbout } from '../registry.ts';
import { renderAnswerSchemas } from './answer-schemas.ts';
import { renderSchemas } from './schemas.ts';

const ROOT = path.resolve(import.meta.dir, '../..');

/** Writes `lib/`, `types/` and `schemas/` below a directory. */
export async function buildLibrary(outDir: string): Promise<void> {
  await bundleForNode(path.join(outDir, 'lib'));
  declareTypes(path.join(outDir, 'types'));
  await writeSchemas(path.join(outDir, 'schemas'));
}

/**
 * The only package that is loaded late, by `require`: bundlers of others would leave that as it is, so their result would miss the
 * package wherever it is not installed.
 */
const BUNDLED = 'semver';

// Node below version 22 cannot load TypeScript, and no version loads it from a package: it gets one bundle, with dependencies
// left external.
async function bundleForNode(libDir: string): Promise<void> {
  const packages = Object.keys({ ...manifest.dependencies, ...manifest.devDependencies });
  await Bun.build({
    entrypoints: [path.join(ROOT, manifest.exports['.'].bun)],
    outdir: libDir,
    target: 'node',
    format: 'esm',
    external: packages.filter(name => name !== BUNDLED).flatMap(name => [name, `${name}/*`]),
    splitting: true,
  });
}

/**
 * Declarations of every entry point and everything reachable from it. Bun could use the sources, but a consumer's compiler would
 * check them by its own rules. Checking the types is left to the type check, not to the build.
 */
function declareTypes(typesDir: string): void {
  const entries = Object.values(manifest.exports).flatMap(entry => {
    return typeof entry === 'object' && 'bun' in entry ? [path.join(ROOT, entry.bun)] : [];
  });
  const options = {
    noEmit: false,
    declaration: true,
    emitDeclarationOnly: true,
    noCheck: true,
    rootDir: path.join(ROOT, 'src'),
    outDir: typesDir,
    typeRoots: [path.join(ROOT, 'node_modules/@types')],
  };
  fs.rmSync(typesDir, { recursive: true, force: true });
  fs.mkdirSync(typesDir, { recursive: true });
  const project = path.join(typesDir, 'tsconfig.json');
  const config = {
    extends: path.join(ROOT, 'tsconfig.json'),
    compilerOptions: options,
    include: [],
    files: entries,
  };
  fs.writeFileSync(project, JSON.stringify(config));
  const tsc = path.join(ROOT, 'node_modules/.bin/tsc');
  const { exitCode, stdout } = Bun.spawnSync([tsc, '--project', project]);
  fs.rmSync(project);
  if (exitCode !== 0) throw new Error(`Cannot declare the types of the package: ${stdout.toString().trim()}`);
}

async function writeSchemas(schemasDir: string): Promise<void> {
  fs.rmSync(schemasDir, { recursive: true, force: true });
  const answersDir = path.join(schemasDir, 'output');
  fs.mkdirSync(answersDir, { recursive: true });
  const put = (dir: string, schemas: Readonly<Record<string, object>>) => {
    for (const [name, schema] of Object.entries(schemas))
      fs.writeFileSync(path.join(dir, `${name}.json`), `${JSON.stringify(schema, null, 2)}\n`);
  };
  const ours = await renderSchemas();
  // With those of third-party plugins that people chain with ours, as `catena validate --schema` prints them.
  const catalog = { types: KNOWN_TYPES, find: loadAbout, schemas: async () => ours };
  put(schemasDir, await withForeign(catalog, [], () => {}).schemas());
  put(answersDir, renderAnswerSchemas());
}
