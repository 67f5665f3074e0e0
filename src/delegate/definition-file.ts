// Which NetworkAttachmentDefinitions are in a directory of JSON and YAML files?
import { type Dirent, readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject } from '../cni/json.ts';

/** The parts of a Kubernetes definition that are needed here. */
export interface NetworkDefinition {
  readonly name: string;
  /** Undefined if the file does not name one: the definition is then for every namespace. */
  readonly namespace: string | undefined;
  /** Text of the CNI configuration; empty if a file of the same name in `confDir` holds it. */
  readonly config: string;
  /** Its annotation: the resource of which the network gets a device. */
  readonly resource?: string;
}

/** Annotation of a definition. */
const RESOURCE_NAME = 'k8s.v1.cni.cncf.io/resourceName';

const KIND = 'NetworkAttachmentDefinition';

/**
 * The definition of that name, in the order of file names; JSON files come before YAML files. An unreadable file
 * does not hide the others.
 * @throws CniError 7 when there is none, but unreadable files might hold it; 5 when the directory cannot be read
 */
export async function findDefinition(
  dir: string,
  namespace: string,
  name: string,
): Promise<NetworkDefinition | undefined> {
  const broken: string[] = [];
  for (const file of definitionFiles(dir)) {
    try {
      const text = readFileSync(file, 'utf8');
      // Most files are of other networks, and parsing YAML is slow.
      if (!text.includes(name)) continue;
      const found = (await readDefinitions(file, text)).find(
        one => one.name === name && (one.namespace ?? namespace) === namespace,
      );
      if (found) return found;
    } catch (error) {
      broken.push(`"${file}": ${(error as Error).message}`);
    }
  }
  if (!broken.length) return undefined;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot find ${KIND} "${namespace}/${name}": some files of "${dir}" cannot be read`,
    { details: broken.join('; ') },
  );
}

/** The definitions in a Kubernetes object: itself, or the items of a list; none in any other object. */
export function definitionsOf(object: unknown): NetworkDefinition[] {
  if (!isObject(object)) return [];
  if (Array.isArray(object.items)) return object.items.flatMap(definitionsOf);
  const metadata = isObject(object.metadata) ? object.metadata : {};
  const { name, namespace } = metadata;
  if (object.kind !== KIND || typeof name !== 'string') return [];
  const annotations = isObject(metadata.annotations) ? metadata.annotations : {};
  const resource = annotations[RESOURCE_NAME];
  const spec: JsonObject = isObject(object.spec) ? object.spec : {};
  return [
    {
      name,
      namespace: typeof namespace === 'string' && namespace !== '' ? namespace : undefined,
      config: typeof spec.config === 'string' ? spec.config : '',
      ...(typeof resource === 'string' && resource !== '' ? { resource } : {}),
    },
  ];
}

function definitionFiles(dir: string): string[] {
  let entries: Dirent[];
  try {
    entries = readdirSync(dir, { withFileTypes: true });
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    const text = `Cannot read definitions of networks in "${dir}": ${(cause as Error).message}`;
    throw new CniError(ErrorCode.ioFailure, text, { cause });
  }
  const named = (...extensions: string[]) =>
    entries
      .filter(entry => !entry.isDirectory() && extensions.includes(extname(entry.name)))
      .map(entry => join(dir, entry.name))
      .sort();
  return [...named('.json'), ...named('.yaml', '.yml')];
}

async function readDefinitions(file: string, text: string): Promise<NetworkDefinition[]> {
  if (extname(file) === '.json') return definitionsOf(JSON.parse(text));
  const { parseAllDocuments } = await import('yaml');
  return parseAllDocuments(text, { logLevel: 'error' }).flatMap(document => {
    const [problem] = 'errors' in document ? document.errors : [];
    if (problem) throw problem;
    return 'toJS' in document ? definitionsOf(document.toJS()) : [];
  });
}
