// Who may read the page: what is the one-time token worth, and how does a browser show later that it had it?
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';

const COOKIE = 'catena-ui';

/** One run of the server. The first browser that brings the token gets the session; the token is void then. */
export interface Session {
  /** To be given to the person at the terminal. */
  readonly token: string;
  /**
   * The folder of the page in its address, with a slash at both ends. Browsers send a cookie to every port of a host; as its path is
   * unguessable, the cookie of this session reaches no other server on this host.
   */
  readonly folder: string;
  /** Exchanges the token. @returns the value of `Set-Cookie`; undefined if the token is wrong or was used before */
  redeem(token: string): string | undefined;
  /** Whether a request's `Cookie` header belongs to this session. */
  admits(cookies: string | null): boolean;
}

/** Creates a session with 256 random bits for each of its secrets. */
export function createSession(): Session {
  const [token, key, folder] = [secret(), secret(), `/${secret()}/`];
  let isRedeemed = false;
  return {
    token,
    folder,
    redeem(given) {
      if (isRedeemed || !isSame(given, token)) return undefined;
      isRedeemed = true;
      return `${COOKIE}=${key}; Path=${folder}; HttpOnly; SameSite=Strict`;
    },
    admits(cookies) {
      if (!isRedeemed) return false;
      const values = (cookies ?? '').split(';').map(one => one.trim().split('='));
      return values.some(([name, value = '']) => name === COOKIE && isSame(value, key));
    },
  };
}

function secret(): string {
  return randomBytes(32).toString('base64url');
}

/** In a time that does not depend on where they differ. */
function isSame(a: string, b: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}
