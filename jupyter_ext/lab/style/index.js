import './base.css';
import './card.css';
import './panel.css';
import './pages.css';
