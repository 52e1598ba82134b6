/** Put a text into the clipboard. Uses the copy event, because `navigator.clipboard` is missing on pages without HTTPS. */
export function copyText(text: string): void {
  const put = (event: ClipboardEvent): void => {
    event.clipboardData?.setData('text/plain', text);
    event.preventDefault();
  };
  document.addEventListener('copy', put, { once: true });
  document.execCommand('copy');
  document.removeEventListener('copy', put);
}
