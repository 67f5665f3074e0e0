// Does Kubernetes know every field of an object, and does each have the required type?
import * as models from '@kubernetes/client-node';

interface Field {
  readonly baseName: string;
  readonly type: string;
}

type Model = { getAttributeTypeMap(): readonly Field[] };

const MODELS = models as unknown as Readonly<Record<string, Model | undefined>>;
const PLAIN: readonly string[] = ['string', 'number', 'boolean'];

/**
 * Fields of an object that the client library's models, which are generated from the API's description, do not know. The models
 * do not say which fields are mandatory.
 * @param type name of the model: `V1DaemonSet`
 */
export function findShapeProblems(value: unknown, type: string, path: readonly string[] = []): string[] {
  const [, element] = /^Array<(.*)>$/.exec(type) ?? [];
  const [, member] = /^\{ \[key: string\]: (.*); \}$/.exec(type) ?? [];
  const wrong = (expected: string) => [
    `${path.join('.')}: expected ${expected}, found ${JSON.stringify(value)}`,
  ];
  if (type === 'any' || type === 'object') return [];
  if (type === 'IntOrString')
    return ['string', 'number'].includes(typeof value) ? [] : wrong('a number or text');
  if (PLAIN.includes(type)) return typeof value === type ? [] : wrong(type);
  if (typeof value !== 'object' || value === null) return wrong(type);
  if (element !== undefined) {
    if (!Array.isArray(value)) return wrong(type);
    return value.flatMap((one, i) => findShapeProblems(one, element, [...path, String(i)]));
  }
  const fields = member === undefined ? MODELS[type]?.getAttributeTypeMap() : undefined;
  if (member === undefined && fields === undefined) return [`${path.join('.')}: there is no model ${type}`];
  return Object.entries(value).flatMap(([key, one]) => {
    const known = member ?? fields?.find(({ baseName }) => baseName === key)?.type;
    const at = [...path, key];
    return known === undefined
      ? [`${at.join('.')}: ${type} has no such field`]
      : findShapeProblems(one, known, at);
  });
}
