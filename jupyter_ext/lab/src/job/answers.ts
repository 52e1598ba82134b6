/** What the server answers about one job, apart from the job itself. */

export type { ILoggedLine as ILogLine, ILogPage, IWhatIf } from '../schemas';
